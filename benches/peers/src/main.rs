//! kvradix and the published prefix indexes, side by side.

mod args;
mod block;
mod chart;
mod curves;
mod goals;
mod memory;
mod metric;
mod peer;
mod peers;
mod report;
mod runs;
mod samples;
mod stopwatch;
mod table;
mod workloads;

use std::{env, fs};

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::args::Args;
use crate::report::Report;

fn main() -> Result<()> {
    let mut args = env::args().skip(1);
    if args.next().as_deref() == Some(runs::MEASURE) {
        return runs::measure(args);
    }
    let args = Args::parse();
    let report: Report = match &args.show {
        Some(file) => {
            let text = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
            serde_json::from_slice(&text).with_context(|| format!("in {}", file.display()))?
        }
        None => runs::play(&args)?,
    };
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&table::json(&report))?;
        fs::write(file, text + "\n").with_context(|| format!("writing {}", file.display()))?;
    }
    if let Some(file) = &args.svg {
        chart::draw(&report, file)?;
    }
    if let Some(file) = &args.curves {
        curves::draw(&report, file)?;
    }
    let all = args.all || args.quick;
    println!(
        "{}\n\n{}\n\n{}",
        table::head(&report),
        table::table(&report, all),
        table::summary(&report)
    );
    if let Some(growth) = curves::growth(&report) {
        println!(
            "\nhow it grows: kvradix's figures at the least and the greatest count; the change of each\n"
        );
        println!("{growth}");
    }
    ensure!(report.failed.is_empty(), "{}", report.failed.join("\n"));
    Ok(())
}

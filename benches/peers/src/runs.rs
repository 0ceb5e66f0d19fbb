//! Runs the workloads, each index in a process of its own.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr};
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::args::Args;
use crate::metric::{Metric, Metrics};
use crate::peer::Kind;
use crate::peers::{DynamoConcurrent, DynamoRadix, KvIndex, Kvradix, SmgRadix};
use crate::report::{Figure, Machine, Report};
use crate::workloads::Task;

/// The first argument of a process that measures.
pub const MEASURE: &str = "--measure";

/// Measures one task for one index and prints the figures for the process
/// that started this one.
///
/// # Errors
///
/// The arguments are none of [`play`]'s, or the workload failed.
pub fn measure(mut args: impl Iterator<Item = String>) -> Result<()> {
    let (Some(kind), Some(task)) = (args.next(), args.next()) else {
        bail!("{MEASURE} is internal")
    };
    let task: Task = serde_json::from_str(&task)?;
    let metrics = match serde_json::from_str(&kind)? {
        Kind::Kvradix => task.run::<Kvradix>(),
        Kind::KvIndex => task.run::<KvIndex>(),
        Kind::DynamoRadix => task.run::<DynamoRadix>(),
        Kind::DynamoConcurrent => task.run::<DynamoConcurrent>(),
        Kind::SmgRadix => task.run::<SmgRadix>(),
    };
    let Metrics { list } = metrics?;
    println!("{}", serde_json::to_string(&list)?);
    Ok(())
}

/// Plays all tasks for all indexes, so often as asked for. What went wrong is
/// in the report.
///
/// # Errors
///
/// The arguments do not say what to do.
pub fn play(args: &Args) -> Result<Report> {
    let (tasks, peers) = (args.tasks()?, args.peers());
    let runs = if args.quick { 1 } else { args.runs };
    let mut machine = Machine::new();
    let mut figures: Vec<Figure> = Vec::new();
    let mut failed = Vec::new();
    for run in 0..runs {
        for task in &tasks {
            for turn in 0..peers.len() {
                // Every run begins with another one.
                let kind = peers[(turn + run as usize) % peers.len()];
                let what = format!("run {} of {runs}: {}, {kind:?}", run + 1, task.name());
                progress(&what);
                match process(kind, task) {
                    Ok(metrics) => record(&mut figures, kind, metrics),
                    Err(error) => failed.push(format!("{what}: {error:#}")),
                }
            }
        }
    }
    progress("");
    machine.ended();
    figures.retain(|figure| {
        figure.key != "check.digest" || {
            let mut digests = figure.runs.values().flatten();
            let first = digests.next();
            if digests.any(|digest| Some(digest) != first) {
                failed.push("check: the indexes do not agree".to_owned());
            } else {
                println!("check: {} indexes give exact answers, all alike", figure.runs.len());
            }
            false
        }
    });
    Ok(Report { machine, runs, quick: args.quick, figures, failed })
}

fn process(kind: Kind, task: &Task) -> Result<Vec<Metric>> {
    let program = env::current_exe().context("finding this program")?;
    let output = Command::new(program)
        .arg(MEASURE)
        .arg(serde_json::to_string(&kind)?)
        .arg(serde_json::to_string(task)?)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("starting the process")?;
    ensure!(output.status.success(), "{}", output.status);
    serde_json::from_slice(&output.stdout).context("reading its figures")
}

fn record(figures: &mut Vec<Figure>, kind: Kind, metrics: Vec<Metric>) {
    for Metric { key, unit, value } in metrics {
        let at = figures.iter().position(|figure| figure.key == key).unwrap_or_else(|| {
            figures.push(Figure { key, unit, runs: BTreeMap::new() });
            figures.len() - 1
        });
        figures[at].runs.entry(kind).or_default().push(value);
    }
}

fn progress(text: &str) {
    let mut stderr = stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{text}");
        let _ = stderr.flush();
    } else if !text.is_empty() {
        eprintln!("{text} (load {})", load().unwrap_or_default());
    }
}

/// The load averages of the last 1, 5 and 15 minutes.
pub fn load() -> Option<String> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    Some(text.split(' ').take(3).collect::<Vec<_>>().join(" "))
}

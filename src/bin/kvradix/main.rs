//! `kvradix`: plays a fleet's traffic against the index, and measures it.
//!
//! Every command goes the same way: `args` says what was asked for, a command
//! (`replay`, `churn`, `soak`) runs it and returns a report, `report` prints that.
//! `listen` alone is of another kind: it follows real engines and serves.

mod args;
mod chain;
mod churn;
mod counting;
mod engine;
mod fleet;
mod generator;
mod latency;
#[cfg(feature = "listen")]
mod listen;
mod memory;
mod plot;
mod progress;
mod replay;
mod report;
mod router;
mod soak;
mod threads;
mod trace;
mod workload;

use std::io;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Replay(args) => replay::run(&args),
        Command::Churn(args) => churn::run(&args),
        Command::Soak(args) => soak::run(&args),
        #[cfg(feature = "listen")]
        Command::Listen(args) => listen::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Not `eprintln!`: standard error may be closed as well.
            let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("error: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

/// Whoever read the report has seen enough, as in `kvradix replay | head -3`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io_error = error.downcast_ref::<io::Error>();
    io_error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

//! `kvradix soak`: a long mixed load, watched for whatever grows.
//!
//! `load` makes the load, of `worker`s; `watch` measures and checks; `drift`
//! judges; `outcome` tells.

mod drift;
mod load;
mod outcome;
mod watch;
mod worker;

use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use kvradix::Index;

use crate::args::SoakArgs;
use crate::counting::{self, Whose};
use crate::threads::{join_all, spawn};
use crate::{plot, report};
use load::Load;
use outcome::{End, Outcome};
use watch::{Pace, Sample, Watched};

/// The least time between two lines that are printed.
const LINE: Duration = Duration::from_secs(2);
/// What an index without blocks may keep of its tables, and a thread that has
/// used it of the collector's; ARCHITECTURE.md says of what.
const TABLES_KEPT: i64 = 704 << 10;
const THREAD_KEPT: i64 = 136 << 10;
/// How long the end may take to become visible.
const PATIENCE: Duration = Duration::from_secs(5);

/// A fault that is put in on purpose, to see it found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Plant {
    /// 256 bytes of the index's memory are lost with each request.
    Leak,
    /// The reference has a block that the index is not told of.
    Answer,
    /// 16 MiB of the index's memory are lost at the end.
    Remnant,
}

/// Runs the load, and prints what was seen.
///
/// # Errors
///
/// A wrong answer, a broken invariant, drift, or memory left at the end; the
/// plot cannot be written.
pub fn run(args: &SoakArgs) -> Result<()> {
    ensure!(u32::from(args.writers) <= args.workers, "--writers must not be above --workers");
    if let Some(path) = &args.plot {
        plot::prepare(path)?;
    }
    counting::begin();
    let outcome = counting::of(Whose::Simulation, || soak(args))?;
    if let Some(path) = &args.plot {
        plot::draw(path, &outcome.panels())?;
    }
    report::print(args.common.json, "soak", args, &outcome)?;
    let faults = outcome.faults();
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("; ")) }
}

fn soak(args: &SoakArgs) -> Result<Outcome> {
    let before = counting::live(Whose::Index);
    let index = counting::of(Whose::Index, || args.common.index());
    let empty = counting::live(Whose::Index);
    let load = Load::new(args, &index)?;
    let started = Instant::now();
    let watched = play(args, &load)?;
    let seconds = started.elapsed().as_secs_f64();
    remove_all(&load)?;
    if args.plant == Some(Plant::Remnant) {
        counting::of(Whose::Index, || std::mem::forget(vec![0_u8; 16 << 20]));
    }
    // The main thread, the alarm and the drain threads.
    let threads = args.writers + args.readers + args.common.drain_threads() + 2;
    let allowed = empty + TABLES_KEPT + i64::from(threads) * THREAD_KEPT;
    let (after, stats) = settled(&index, allowed);
    let operations = load.operations.load(Ordering::Relaxed);
    let counts = load.into_counts();
    counting::of(Whose::Index, || drop(index));
    let end = End {
        live_bytes_before: empty - before,
        live_bytes_after: after - before,
        live_bytes_allowed: allowed - before,
        live_bytes_dropped: counting::live(Whose::Index) - before,
        index: stats,
    };
    Ok(Outcome::new(args, seconds, &counts, operations, watched, end))
}

/// Runs the load for as long as was asked for.
fn play(args: &SoakArgs, load: &Load<'_>) -> Result<Watched> {
    // A half for the writers, a half for the readers.
    let share = |threads: u16| args.rate as f64 / 2.0 / f64::from(threads);
    let pace = Pace::of(Duration::from_secs_f64(args.minutes * 60.0));
    let mut printed = None;
    let mut tell = |sample: &Sample| {
        let due = printed.is_none_or(|at: Instant| at.elapsed() >= LINE);
        if args.common.json || !due {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        if printed.is_none() {
            writeln!(out, "{}", outcome::HEAD)?;
        }
        printed = Some(Instant::now());
        writeln!(out, "{}", outcome::line(sample)).context("cannot write what was seen")
    };
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for at in 0..args.writers {
            let run = move || load.write(at.into(), share(args.writers));
            threads.push(spawn(scope, format!("writer {at}"), run)?);
        }
        for at in 0..args.readers {
            let run = move || load.read(at.into(), share(args.readers));
            threads.push(spawn(scope, format!("reader {at}"), run)?);
        }
        let watched = watch::watch(load, pace, &mut tell);
        load.stop();
        join_all(threads)?;
        watched
    })
}

/// Has every worker removed, after a last check.
fn remove_all(load: &Load<'_>) -> Result<()> {
    watch::check(load)?;
    counting::of(Whose::Index, || {
        for worker in load.index.workers() {
            load.index.remove_worker(worker);
        }
        load.index.flush();
    });
    Ok(())
}

/// Live bytes once they are as few as allowed and nothing waits any more, or
/// after a while: tasks of the pool keep lanes until they get their turn, and
/// the collector keeps the bags of its closures.
fn settled(index: &Index, allowed: i64) -> (i64, kvradix::Stats) {
    let deadline = Instant::now() + PATIENCE;
    counting::of(Whose::Index, || {
        loop {
            index.flush();
            let (live, stats) = (counting::live(Whose::Index), index.stats());
            let done = live <= allowed && stats.retired_bytes == 0 && stats.pending_removals == 0;
            if done || Instant::now() > deadline {
                index.check();
                return (live, stats);
            }
            thread::sleep(Duration::from_millis(10));
        }
    })
}

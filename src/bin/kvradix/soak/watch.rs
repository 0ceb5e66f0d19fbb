//! What is measured and checked while the load runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use hdrhistogram::Histogram;
use kvradix::Stats;
use serde::Serialize;

use super::load::Load;
use crate::counting::{self, Whose};
use crate::latency::{Quantiles, histogram};
use crate::memory;

/// A moment of the run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// Seconds since the start.
    pub at: f64,
    /// What the allocator has handed out to the index and its threads.
    pub live_bytes: i64,
    /// The same for engines, references and prompts.
    pub simulation_bytes: i64,
    /// Of the whole process.
    pub resident_bytes: Option<u64>,
    pub index: Stats,
    /// Since the sample before; `None` where there was no query.
    pub query_ns: Option<Quantiles>,
    /// Blocks looked up, stored and removed a second, since the sample before.
    pub operations_per_second: f64,
}

/// How often is looked, and how often everything is stopped and checked.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub run: Duration,
    pub sample: Duration,
    pub check: Duration,
}

impl Pace {
    /// Some 600 samples and 120 checks, but neither all the time nor rarely.
    pub fn of(run: Duration) -> Self {
        let share = |parts, least, most| {
            (run / parts).clamp(Duration::from_millis(least), Duration::from_secs(most))
        };
        Self { run, sample: share(600, 200, 60), check: share(120, 1_000, 300) }
    }
}

/// What was seen.
pub struct Watched {
    pub samples: Vec<Sample>,
    pub checks: u64,
    /// How long the longest check stopped everything.
    pub longest_check: Duration,
    /// Of the whole run, in nanoseconds.
    pub query_ns: Histogram<u64>,
}

/// Takes samples and checks until the run is over, handing each sample to
/// `tell`.
///
/// # Errors
///
/// An invariant is broken, the index counts other than the engines do, or
/// `tell` failed.
pub fn watch(
    load: &Load<'_>,
    pace: Pace,
    tell: &mut dyn FnMut(&Sample) -> Result<()>,
) -> Result<Watched> {
    let started = Instant::now();
    let mut watched = Watched {
        samples: Vec::new(),
        checks: 0,
        longest_check: Duration::ZERO,
        query_ns: histogram()?,
    };
    let mut checked = started;
    let mut operations = (started, 0);
    while started.elapsed() < pace.run && !load.is_stopped() {
        thread::sleep(pace.sample.min(pace.run.saturating_sub(started.elapsed())));
        let now = (Instant::now(), load.operations.load(Ordering::Relaxed));
        let seconds = (now.0 - operations.0).as_secs_f64();
        let query_ns = load.latencies.take()?;
        watched.query_ns.add(&query_ns)?;
        let sample = Sample {
            at: started.elapsed().as_secs_f64(),
            live_bytes: counting::live(Whose::Index),
            simulation_bytes: counting::live(Whose::Simulation),
            resident_bytes: memory::resident(),
            index: counting::of(Whose::Index, || load.index.stats()),
            query_ns: (!query_ns.is_empty()).then(|| Quantiles::of(&query_ns)),
            operations_per_second: (now.1 - operations.1) as f64 / seconds.max(1e-9),
        };
        operations = now;
        tell(&sample)?;
        watched.samples.push(sample);
        if checked.elapsed() >= pace.check {
            let began = Instant::now();
            check(load)?;
            checked = Instant::now();
            watched.checks += 1;
            watched.longest_check = watched.longest_check.max(checked - began);
        }
    }
    Ok(watched)
}

/// Stops everything, checks every invariant of the index, and compares what
/// it counts with what the engines have.
///
/// # Errors
///
/// What is wrong.
pub fn check(load: &Load<'_>) -> Result<()> {
    let (writers, _readers) = load.pause();
    let stats = counting::of(Whose::Index, || {
        load.index.flush();
        let checked = catch_unwind(AssertUnwindSafe(|| load.index.check()));
        checked.map(|()| load.index.stats())
    });
    let stats = stats.map_err(|_| anyhow!("an invariant of the index is broken"))?;
    let workers = || writers.iter().flat_map(|writer| &writer.workers);
    let names: usize = workers().map(|worker| worker.names()).sum();
    let known = workers().filter(|worker| worker.known).count();
    for (what, found, expected) in [
        ("held blocks", stats.held_blocks, names),
        ("known workers", stats.workers, known),
        ("pending removals", stats.pending_removals, 0),
    ] {
        ensure!(
            found == expected as u64,
            "the index counts {found} {what}, the engines {expected}"
        );
    }
    for writer in &writers {
        for worker in writer.workers.iter().filter(|worker| worker.kind.watched) {
            let held = counting::of(Whose::Index, || load.index.held(worker.id));
            let expected = writer.reference.held(worker.id);
            ensure!(
                held == expected,
                "worker {} holds {held} blocks in the index, {expected} in the reference",
                worker.id
            );
        }
    }
    Ok(())
}

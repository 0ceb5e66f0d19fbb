//! What a soak has to say at its end.

use std::sync::atomic::Ordering;

use kvradix::Stats;
use serde::Serialize;

use super::drift::{Drift, Tolerance};
use super::load::Counts;
use super::watch::{Sample, Watched};
use crate::args::SoakArgs;
use crate::latency::Quantiles;
use crate::plot::{BLUE, GREEN, Line, ORANGE, Panel, RED, Scale};
use crate::report::{Report, Row, bytes, count, mebibytes, nanos, row};

/// The report. Field names tell the units.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub seconds: f64,
    workers: u32,
    cache_blocks: u32,
    writers: u16,
    readers: u16,
    rate: u64,
    seed: u64,
    requests: u64,
    queries: u64,
    restarts: u64,
    clears: u64,
    moves: u64,
    /// Answers that were compared with the reference's, all equal.
    compared_answers: u64,
    /// Times that everything was stopped and every invariant held.
    checks: u64,
    /// How long the longest of them took.
    check_seconds_max: f64,
    block_operations_per_second: f64,
    /// Of the whole run.
    query_ns: Quantiles,
    retired_bytes_max: u64,
    pub drifts: Vec<Drift>,
    pub end: End,
    samples: Vec<Sample>,
}

/// What was left once every worker was removed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct End {
    /// Live bytes of the empty index, before the first event.
    pub live_bytes_before: i64,
    pub live_bytes_after: i64,
    /// What `live_bytes_after` may be.
    pub live_bytes_allowed: i64,
    /// Once the index was dropped as well.
    pub live_bytes_dropped: i64,
    pub index: Stats,
}

/// What the figures may grow by; `SoakArgs` says so too.
const SHARE: f64 = 0.08;
/// The same in a run shorter than that: hash tables are still finding the
/// sizes that they need under churn.
const SHARE_OF_SHORT: f64 = 0.30;
const SHORT: f64 = 600.0;
/// Resident memory may grow by so much beside, in mebibytes.
const RESIDENT: f64 = 8.0;
/// Retired bytes that no sample may have seen more of: the two mebibytes above
/// which writers wait, and what is retired while a reader's thread is stopped.
const RETIRED: u64 = 8 << 20;

impl Outcome {
    pub fn new(
        args: &SoakArgs,
        seconds: f64,
        counts: &Counts,
        operations: u64,
        watched: Watched,
        end: End,
    ) -> Self {
        let Watched { samples, checks, longest_check, query_ns } = watched;
        let get = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        Self {
            seconds,
            workers: args.workers,
            cache_blocks: args.cache_blocks,
            writers: args.writers,
            readers: args.readers,
            rate: args.rate,
            seed: args.seed,
            requests: get(&counts.requests),
            queries: get(&counts.queries),
            restarts: get(&counts.restarts),
            clears: get(&counts.clears),
            moves: get(&counts.moves),
            compared_answers: get(&counts.compared),
            checks,
            check_seconds_max: longest_check.as_secs_f64(),
            block_operations_per_second: operations as f64 / seconds.max(f64::MIN_POSITIVE),
            query_ns: Quantiles::of(&query_ns),
            retired_bytes_max: samples.iter().map(|s| s.index.retired_bytes).max().unwrap_or(0),
            drifts: drifts(&samples, seconds),
            end,
            samples,
        }
    }

    /// The picture of it.
    pub fn panels(&self) -> [Panel; 4] {
        panels(&self.samples)
    }

    /// What is not as it should be.
    pub fn faults(&self) -> Vec<String> {
        let drifts = self.drifts.iter().filter(|drift| !drift.is_fine()).map(|drift| {
            let Drift { figure, first, last, allowed } = drift;
            format!("{figure} grew from {first:.3} to {last:.3}; {allowed:.3} is allowed")
        });
        let mut faults: Vec<String> = drifts.collect();
        if self.retired_bytes_max > RETIRED {
            faults.push(format!("{} bytes were retired at once", self.retired_bytes_max));
        }
        let End { live_bytes_after: after, live_bytes_allowed: allowed, index, .. } = self.end;
        if after > allowed {
            faults.push(format!("{after} live bytes are left at the end; {allowed} are allowed"));
        }
        let Stats { workers, tree_blocks, held_blocks, lookup_entries, nodes, .. } = index;
        if [workers, tree_blocks, held_blocks, lookup_entries, nodes] != [0; 5] {
            faults.push(format!("the index is not empty at the end: {index:?}"));
        }
        faults
    }
}

fn drifts(samples: &[Sample], seconds: f64) -> Vec<Drift> {
    let share = if seconds < SHORT { SHARE_OF_SHORT } else { SHARE };
    let per_block = |name, of: fn(&Sample) -> f64| {
        let held = samples.iter().filter(|sample| sample.index.held_blocks > 0);
        let values = held.map(|s| (s.at, of(s) / s.index.held_blocks as f64));
        Drift::of(name, values, seconds, Tolerance { share, beside: 0.0 })
    };
    let resident = samples.iter().filter_map(|s| Some((s.at, mebibytes(s.resident_bytes?))));
    [
        per_block("live bytes a held block", |s| s.live_bytes as f64),
        per_block("nodes a thousand held blocks", |s| s.index.nodes as f64 * 1e3),
        per_block("tree blocks a held block", |s| s.index.tree_blocks as f64),
        per_block("look-up entries a held block", |s| s.index.lookup_entries as f64),
        Drift::of("resident MiB", resident, seconds, Tolerance { share, beside: RESIDENT }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl Report for Outcome {
    fn rows(&self) -> Vec<Row> {
        let mut rows = vec![
            row(
                "load",
                format!(
                    "{:.0} s, {} workers of {} blocks, {} writers, {} readers, seed {}",
                    self.seconds,
                    self.workers,
                    self.cache_blocks,
                    self.writers,
                    self.readers,
                    self.seed
                ),
            ),
            row("block operations", format!("{:.2} M/s", self.block_operations_per_second / 1e6)),
            row(
                "events",
                format!(
                    "{} requests, {} restarts, {} clears, {} times moved names; {} queries beside",
                    count(self.requests),
                    count(self.restarts),
                    count(self.clears),
                    count(self.moves),
                    count(self.queries)
                ),
            ),
            row(
                "exact",
                format!(
                    "{} answers equal to the reference's, {} times all invariants held",
                    count(self.compared_answers),
                    count(self.checks)
                ),
            ),
            row(
                "query time",
                format!(
                    "p50 {}, p99 {}, p99.9 {}, max {}",
                    nanos(self.query_ns.p50),
                    nanos(self.query_ns.p99),
                    nanos(self.query_ns.p999),
                    nanos(self.query_ns.max)
                ),
            ),
            row("retired at most", bytes(Some(self.retired_bytes_max))),
        ];
        rows.extend(self.drifts.iter().map(|drift| {
            let Drift { figure, first, last, allowed } = drift;
            row(figure, format!("{first:.3} first, {last:.3} last, {allowed:.3} allowed"))
        }));
        let End { live_bytes_before, live_bytes_after, live_bytes_allowed, .. } = self.end;
        rows.push(row(
            "live bytes, all removed",
            format!(
                "{} (an index without events {}, {} allowed)",
                count(live_bytes_after.max(0) as u64),
                count(live_bytes_before.max(0) as u64),
                count(live_bytes_allowed.max(0) as u64)
            ),
        ));
        rows
    }
}

/// The head of the lines that are printed as the run goes.
pub const HEAD: &str = "      s  live MiB   RSS MiB      held      tree     nodes   entries  pending  \
                        retired KiB  p50 µs  p99 µs  p99.9 µs  M ops/s";

/// The line of a sample.
pub fn line(sample: &Sample) -> String {
    let Sample { at, live_bytes, index, query_ns, .. } = sample;
    let micros = |of: fn(&Quantiles) -> u64| {
        query_ns.as_ref().map_or("n/a".to_owned(), |q| format!("{:.2}", of(q) as f64 / 1e3))
    };
    format!(
        "{at:7.1} {:9.2} {:>9} {:9} {:9} {:9} {:9} {:8} {:12.1} {:>7} {:>7} {:>9} {:8.2}",
        *live_bytes as f64 / f64::from(1 << 20),
        sample.resident_bytes.map_or("n/a".to_owned(), |bytes| format!("{:.1}", mebibytes(bytes))),
        index.held_blocks,
        index.tree_blocks,
        index.nodes,
        index.lookup_entries,
        index.pending_removals,
        index.retired_bytes as f64 / 1024.0,
        micros(|q| q.p50),
        micros(|q| q.p99),
        micros(|q| q.p999),
        sample.operations_per_second / 1e6,
    )
}

/// Memory, what is held, and query times, over time.
fn panels(samples: &[Sample]) -> [Panel; 4] {
    let line = |name, colour, of: &dyn Fn(&Sample) -> Option<f64>| {
        let points = samples.iter().filter_map(|s| Some((s.at, of(s)?)));
        Line { name, colour, points: points.collect() }
    };
    let times = |name, colour, of: fn(&Quantiles) -> u64| {
        line(name, colour, &|s| Some(of(s.query_ns.as_ref()?) as f64 / 1e3))
    };
    let thousands = |count: u64| Some(count as f64 / 1e3);
    [
        Panel {
            caption: "Memory: live of the index alone, resident of the whole process".to_owned(),
            values: "MiB",
            scale: Scale::Linear,
            lines: vec![
                line("live", BLUE, &|s| Some(mebibytes(s.live_bytes.max(0) as u64))),
                line("resident", GREEN, &|s| s.resident_bytes.map(mebibytes)),
            ],
        },
        Panel {
            caption: "Blocks".to_owned(),
            values: "thousands",
            scale: Scale::Linear,
            lines: vec![
                line("held", BLUE, &|s| thousands(s.index.held_blocks)),
                line("in the tree", GREEN, &|s| thousands(s.index.tree_blocks)),
            ],
        },
        Panel {
            caption: "Nodes of the tree".to_owned(),
            values: "thousands",
            scale: Scale::Linear,
            lines: vec![line("nodes", RED, &|s| thousands(s.index.nodes))],
        },
        Panel {
            caption: "Time of a query".to_owned(),
            values: "query time (µs, log scale)",
            scale: Scale::Logarithmic,
            lines: vec![
                times("p50", BLUE, |q| q.p50),
                times("p99", ORANGE, |q| q.p99),
                times("p99.9", RED, |q| q.p999),
            ],
        },
    ]
}

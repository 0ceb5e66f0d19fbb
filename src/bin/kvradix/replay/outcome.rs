//! What a replay has to say at its end.

use std::time::Duration;

use kvradix::Stats;
use serde::Serialize;

use super::monitor::{QueueDepth, Watched};
use crate::args::ReplayArgs;
use crate::fleet::Tally;
use crate::latency::Quantiles;
use crate::report::{Report, Row, bytes, count, nanos, percent, row, seconds};

/// What was counted and measured while the workload was played.
#[derive(Debug)]
pub struct Played {
    pub tally: Tally,
    pub took: Duration,
    pub watched: Watched,
    /// Queries that were compared with the reference.
    pub verified: Option<u64>,
}

/// The report. Field names tell the units.
#[derive(Debug, Serialize)]
pub struct Outcome {
    requests: u64,
    verified_queries: Option<u64>,
    workers: u32,
    cache_blocks: u64,
    block_tokens: u32,
    router_threads: u16,
    applier_threads: u16,
    seconds: f64,
    /// Shares of the prompts' blocks, 0 to 1.
    hit_rate: f64,
    oracle_hit_rate: f64,
    anywhere_hit_rate: f64,
    /// The hits as a share of the oracle's, 0 to 1; 1 if it has none.
    hits_of_oracle: f64,
    blocks: Tally,
    block_operations_per_second: f64,
    query_ns: Quantiles,
    memory: Memory,
    queue_depth: QueueDepth,
    index: Stats,
}

/// Resident memory of the process, `None` where the system does not tell.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    pub before_bytes: Option<u64>,
    pub after_bytes: Option<u64>,
}

impl Outcome {
    pub fn new(args: &ReplayArgs, played: &Played, memory: Memory, index: Stats) -> Self {
        let Played { tally, took, watched, verified } = played;
        let seconds = took.as_secs_f64();
        Self {
            requests: tally.requests,
            verified_queries: *verified,
            workers: args.workers,
            cache_blocks: args.cache_blocks,
            block_tokens: args.block_size,
            router_threads: args.routers,
            applier_threads: args.appliers,
            seconds,
            hit_rate: share(tally.hit, tally.prompt, 0.0),
            oracle_hit_rate: share(tally.oracle, tally.prompt, 0.0),
            anywhere_hit_rate: share(tally.anywhere, tally.prompt, 0.0),
            hits_of_oracle: share(tally.hit, tally.oracle, 1.0),
            blocks: *tally,
            block_operations_per_second: tally.operations() as f64 / seconds.max(f64::MIN_POSITIVE),
            query_ns: Quantiles::of(&watched.query_ns),
            memory,
            queue_depth: watched.queue,
            index,
        }
    }
}

fn share(part: u64, whole: u64, of_nothing: f64) -> f64 {
    if whole == 0 { of_nothing } else { part as f64 / whole as f64 }
}

impl Report for Outcome {
    fn rows(&self) -> Vec<Row> {
        let Self { blocks, query_ns, memory, queue_depth, index, .. } = self;
        let checked = self.verified_queries.map(|queries| {
            row("verified", format!("{} queries, all equal to the reference", count(queries)))
        });
        let note = if checked.is_some() { ", the reference's time included" } else { "" };
        let mut rows = vec![
            row("requests", format!("{} in {}{note}", count(self.requests), seconds(self.seconds))),
            row(
                "fleet",
                format!(
                    "{} workers of {} blocks; {} router and {} applier threads",
                    count(self.workers.into()),
                    count(self.cache_blocks),
                    self.router_threads,
                    self.applier_threads
                ),
            ),
        ];
        rows.extend(checked);
        rows.extend([
            row(
                "hit rate",
                format!(
                    "{} of {} prompt blocks; oracle {}: {} of the oracle's",
                    percent(self.hit_rate),
                    count(blocks.prompt),
                    percent(self.oracle_hit_rate),
                    percent(self.hits_of_oracle)
                ),
            ),
            row(
                "cached anywhere",
                format!("{}, overloaded workers included", percent(self.anywhere_hit_rate)),
            ),
            row(
                "block operations",
                format!(
                    "{:.2} M/s: {} looked up, {} stored, {} removed",
                    self.block_operations_per_second / 1e6,
                    count(blocks.prompt),
                    count(blocks.stored),
                    count(blocks.removed)
                ),
            ),
            row(
                "query time",
                format!(
                    "p50 {}, p99 {}, p99.9 {}, max {}",
                    nanos(query_ns.p50),
                    nanos(query_ns.p99),
                    nanos(query_ns.p999),
                    nanos(query_ns.max)
                ),
            ),
            row(
                "resident memory",
                format!(
                    "{} at the end, {} at the start (simulated caches included)",
                    bytes(memory.after_bytes),
                    bytes(memory.before_bytes)
                ),
            ),
            row(
                "queue depth",
                format!("max {} events, mean {:.1}", count(queue_depth.max), queue_depth.mean),
            ),
            row(
                "index",
                format!(
                    "{} held blocks, {} in the tree, {} nodes, {} look-up entries",
                    count(index.held_blocks),
                    count(index.tree_blocks),
                    count(index.nodes),
                    count(index.lookup_entries)
                ),
            ),
        ]);
        rows
    }
}

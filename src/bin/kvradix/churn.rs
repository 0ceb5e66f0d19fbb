//! `kvradix churn`: what unique suffixes leave behind.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use kvradix::{Block, Index, LocalHash, SequenceHash, Stats, WorkerId};
use serde::Serialize;

use crate::args::ChurnArgs;
use crate::report::{Report, Row, bytes, count, mebibytes, row, seconds};
use crate::{memory, progress, report};

/// Blocks of the prompt that stays cached.
const PROMPT_BLOCKS: u64 = 16;
/// Blocks of each suffix.
const SUFFIX_BLOCKS: u64 = 8;
/// Cycles before the first measurement.
const WARM_UP_CYCLES: u64 = 5_000;
/// Cycles between two looks at the progress bar.
const STRIDE: u64 = 500;

const WORKER: WorkerId = WorkerId::new(0, 0);

/// Runs the cycles and prints what they cost and left.
///
/// # Errors
///
/// The index refused a store.
pub fn run(args: &ChurnArgs) -> Result<()> {
    let index = args.common.index();
    let prompt: Vec<Block> = (0..PROMPT_BLOCKS).map(block).collect();
    index.store(WORKER, None, &prompt).context("storing the prompt")?;
    let mut churn = Churn { index: &index, unused: PROMPT_BLOCKS };

    // The bar is warmed up as well: its code, too, is resident once it ran.
    let bar = progress::bar(args.cycles, "cycles");
    churn.run(WARM_UP_CYCLES, &bar)?;
    index.flush();
    let stats_before = index.stats();
    // Once unread, so that what reading takes is there already.
    memory::resident();
    let before = memory::resident();

    bar.reset();
    let took = churn.run(args.cycles, &bar)?;
    index.flush();
    let after = memory::resident();
    bar.finish_and_clear();

    let seconds = took.as_secs_f64();
    let outcome = Outcome {
        cycles: args.cycles,
        seconds,
        cycles_per_second: args.cycles as f64 / seconds.max(f64::MIN_POSITIVE),
        resident_bytes_before: before,
        resident_bytes_after: after,
        resident_bytes_added: before.zip(after).map(|(before, after)| after as i64 - before as i64),
        before: stats_before,
        after: index.stats(),
    };
    report::print(args.common.json, "churn", args, &outcome)
}

/// The cycles; suffixes are of contents and names never used before.
struct Churn<'index> {
    index: &'index Index,
    /// The lowest hash that no block has had.
    unused: u64,
}

impl Churn<'_> {
    fn run(&mut self, cycles: u64, bar: &ProgressBar) -> Result<Duration> {
        let parent = Some(block(PROMPT_BLOCKS - 1).sequence);
        let mut suffix = [Block::default(); SUFFIX_BLOCKS as usize];
        let mut names = [SequenceHash::default(); SUFFIX_BLOCKS as usize];
        let started = Instant::now();
        for cycle in 0..cycles {
            for (stored, name) in suffix.iter_mut().zip(&mut names) {
                *stored = block(self.unused);
                *name = stored.sequence;
                self.unused = self.unused.wrapping_add(1);
            }
            self.index.store(WORKER, parent, &suffix).context("storing a suffix")?;
            self.index.remove(WORKER, &names);
            if cycle % STRIDE == 0 {
                bar.set_position(cycle);
            }
        }
        // The removals of the last cycle count too.
        self.index.flush();
        Ok(started.elapsed())
    }
}

/// The `number`-th block. Hashes are spread over all 64 bits, as real ones
/// are: an odd factor keeps different numbers different.
fn block(number: u64) -> Block {
    let local = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let sequence = number.wrapping_add(1).wrapping_mul(0xd6e8_feb8_6659_fd93);
    Block { local: LocalHash(local), sequence: SequenceHash(sequence) }
}

/// The report. Field names tell the units.
#[derive(Debug, Serialize)]
struct Outcome {
    cycles: u64,
    seconds: f64,
    cycles_per_second: f64,
    resident_bytes_before: Option<u64>,
    resident_bytes_after: Option<u64>,
    resident_bytes_added: Option<i64>,
    before: Stats,
    after: Stats,
}

impl Report for Outcome {
    fn rows(&self) -> Vec<Row> {
        let added = self.resident_bytes_added.map_or_else(
            || "n/a".to_owned(),
            |added| {
                let sign = if added < 0 { '-' } else { '+' };
                format!(
                    "{sign}{:.3} MiB (from {} to {})",
                    mebibytes(added.unsigned_abs()),
                    bytes(self.resident_bytes_before),
                    bytes(self.resident_bytes_after)
                )
            },
        );
        let change = |unit: &str, of: fn(&Stats) -> u64| {
            let (before, after) = (count(of(&self.before)), count(of(&self.after)));
            format!("{before}{unit} before, {after}{unit} after")
        };
        vec![
            row("cycles", format!("{} in {}", count(self.cycles), seconds(self.seconds))),
            row("speed", format!("{:.3} M cycles/s", self.cycles_per_second / 1e6)),
            row("resident memory added", added),
            row("nodes in the tree", change("", |stats| stats.nodes)),
            row("blocks in the tree", change("", |stats| stats.tree_blocks)),
            row("look-up entries", change("", |stats| stats.lookup_entries)),
            row("index memory", change(" bytes", |stats| stats.memory.total())),
            row("of that retired", change(" bytes", |stats| stats.retired_bytes)),
        ]
    }
}

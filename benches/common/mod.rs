//! What the benchmarks share: chains of blocks, fleets that hold them, and
//! measuring times that keep a whole run to a few minutes.

// Each benchmark is a crate of its own and uses a part of this.
#![allow(dead_code)]

use std::time::Duration;

use criterion::Criterion;
use kvradix::{Block, Index, LocalHash, SequenceHash, WorkerId};

/// Blocks that events carry where nothing else is said.
pub const BATCH: usize = 16;
/// Blocks of the prompt that suffixes hang below.
pub const PROMPT: usize = 16;

/// Short by default; the command line overrides (`--measurement-time 10`).
pub fn criterion() -> Criterion {
    let quick = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    quick.configure_from_args()
}

/// Rank 0 of worker `id`.
pub fn worker(id: usize) -> WorkerId {
    WorkerId::new(id as u64, 0)
}

/// The blocks of chain `number`: no two chains share a hash.
pub fn chain(number: usize, blocks: usize) -> Vec<Block> {
    let first = (number as u64) << 24;
    let block = |at: u64| Block { sequence: SequenceHash(mix(!at)), local: LocalHash(mix(at)) };
    (first..first + blocks as u64).map(block).collect()
}

/// What the blocks are called.
pub fn names(blocks: &[Block]) -> Vec<SequenceHash> {
    blocks.iter().map(|block| block.sequence).collect()
}

/// The query that asks for just these blocks.
pub fn query<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> Vec<LocalHash> {
    blocks.into_iter().map(|block| block.local).collect()
}

/// Stores `blocks` below `parent`, `batch` blocks an event.
pub fn store(
    index: &Index,
    worker: WorkerId,
    mut parent: Option<SequenceHash>,
    blocks: &[Block],
    batch: usize,
) {
    for blocks in blocks.chunks(batch) {
        index.store(worker, parent, blocks).expect("the parent was just stored");
        parent = blocks.last().map(|block| block.sequence);
    }
}

/// An index in which workers 0 to `holders` hold one chain.
pub fn shared_chain(blocks: &[Block], holders: usize) -> Index {
    let index = Index::new();
    for holder in 0..holders {
        store(&index, worker(holder), None, blocks, BATCH);
    }
    index
}

/// An index in which worker 0 holds a prompt and below it so many suffixes of
/// `blocks` blocks, and the suffixes.
pub fn suffixes(prompt: &[Block], number: usize, blocks: usize) -> (Index, Vec<Vec<Block>>) {
    let index = shared_chain(prompt, 1);
    let parent = prompt.last().map(|block| block.sequence);
    let suffixes: Vec<_> = (1..=number).map(|number| chain(number, blocks)).collect();
    for suffix in &suffixes {
        store(&index, worker(0), parent, suffix, BATCH);
    }
    (index, suffixes)
}

/// Spreads numbers over all 64 bits, as real hashes are; different numbers
/// stay different.
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

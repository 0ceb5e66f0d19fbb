//! What the tests share: short spellings, a stream generator and the harness
//! that holds an index to the reference.

// Each test file is a crate of its own and uses a part of this.
#![allow(dead_code)]

pub mod compare;
pub mod counting;
pub mod paths;
pub mod stream;
pub mod subject;

use kvradix::{Block, Index, LocalHash, Matches, SequenceHash, WorkerId};

/// Rank 0 of worker `id`.
pub const fn worker(id: u64) -> WorkerId {
    WorkerId::new(id, 0)
}

/// A block of this name and content.
pub fn block(name: u64, content: u64) -> Block {
    Block { sequence: SequenceHash(name), local: LocalHash(content) }
}

/// Blocks of the given (name, content).
pub fn blocks(pairs: impl IntoIterator<Item = (u64, u64)>) -> Vec<Block> {
    pairs.into_iter().map(|(name, content)| block(name, content)).collect()
}

/// A name, as the parent of a store.
pub fn below(name: u64) -> Option<SequenceHash> {
    Some(SequenceHash(name))
}

/// Names of blocks.
pub fn names(names: impl IntoIterator<Item = u64>) -> Vec<SequenceHash> {
    names.into_iter().map(SequenceHash).collect()
}

/// Contents of blocks: a query.
pub fn query(contents: impl IntoIterator<Item = u64>) -> Vec<LocalHash> {
    contents.into_iter().map(LocalHash).collect()
}

/// An answer as (worker, depth), sorted by worker.
pub fn answer(matches: &Matches) -> Vec<(WorkerId, u32)> {
    let mut answer: Vec<_> = matches.iter().map(|found| (found.worker, found.depth)).collect();
    answer.sort_unstable();
    answer
}

/// How many leading blocks of `contents` the worker holds, once all that was
/// handed in is visible.
pub fn depth(index: &Index, worker: WorkerId, contents: &[u64]) -> u32 {
    index.flush();
    index.matches(LocalHash::from_slice(contents)).depth_of(worker)
}

/// That nothing is left in tree and lookup, once all that was handed in is
/// visible.
pub fn assert_empty(index: &Index) {
    index.flush();
    index.check();
    let stats = index.stats();
    let left = (stats.tree_blocks, stats.nodes, stats.held_blocks, stats.lookup_entries);
    assert_eq!(left, (0, 0, 0, 0), "{stats:?}");
    assert_eq!(stats.pending_removals, 0);
}

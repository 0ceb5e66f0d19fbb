//! What the models of the index have in common.
//!
//! Loom's search remembers only the last load of an atomic, so it finds the
//! runs in which a load comes early from those in which it comes late, but not
//! the other way round. Models therefore run writers on the first thread, or
//! the first ones, and readers on the last.

// The models on the real collector use a part of this.
#![cfg_attr(kvradix_loom_epoch, allow(dead_code))]

use kvradix::model::Arc;
use kvradix::{Block, Builder, Index, LocalHash, SequenceHash, WorkerId};
use kvradix_loom_tests::{Thread, spawn};

/// Worker `id`.
pub const fn worker(id: u64) -> WorkerId {
    WorkerId::new(id, 0)
}

pub const A: WorkerId = worker(1);
pub const B: WorkerId = worker(2);
pub const C: WorkerId = worker(3);
/// Holds what nobody touches.
pub const K: WorkerId = worker(9);

/// Blocks whose names are their contents.
pub fn blocks(names: &[u64]) -> Vec<Block> {
    names.iter().map(|&name| named(name, name)).collect()
}

/// A block with a name of its own.
pub const fn named(name: u64, local: u64) -> Block {
    Block { sequence: SequenceHash(name), local: LocalHash(local) }
}

/// A tiny index without threads.
pub fn small() -> Builder {
    Index::builder().drain_threads(0).run_blocks(4).hub_threshold(2)
}

/// Shared, as a router would share it.
pub fn shared(builder: Builder) -> Arc<Index> {
    Arc::new(builder.build())
}

/// A thread of the model that works on the index.
pub fn on<R: Send + 'static>(
    index: &Arc<Index>,
    f: impl FnOnce(&Index) -> R + Send + 'static,
) -> Thread<R> {
    let index = index.clone();
    spawn(move || f(&index))
}

/// Stores a chain of blocks from the root.
pub fn store(index: &Index, worker: WorkerId, names: &[u64]) {
    index.store(worker, None, &blocks(names)).expect("a root store is accepted");
}

/// Stores blocks below `parent`.
pub fn extend(index: &Index, worker: WorkerId, parent: u64, names: &[u64]) {
    index.store(worker, Some(SequenceHash(parent)), &blocks(names)).expect("the parent is held");
}

/// Removes names.
pub fn remove(index: &Index, worker: WorkerId, names: &[u64]) {
    let names: Vec<_> = names.iter().copied().map(SequenceHash).collect();
    index.remove(worker, &names);
}

/// How much of the chain `worker` holds, as a reader sees it.
pub fn depth(index: &Index, chain: &[u64], worker: WorkerId) -> u32 {
    index.matches(LocalHash::from_slice(chain)).depth_of(worker)
}

/// At rest: the structure is whole, nothing is there that nobody holds.
pub fn settle(index: &Index) {
    index.check();
}

/// At rest and with nobody left: nothing is left either.
pub fn settle_empty(index: &Index) {
    index.check();
    let stats = index.stats();
    let left = (stats.tree_blocks, stats.held_blocks, stats.lookup_entries, stats.nodes);
    assert_eq!(left, (0, 0, 0, 0), "blocks, names, entries and nodes left behind");
}

//! Chains of a million blocks, on a thread with a 256 KiB stack: nothing that
//! walks the tree may do so by recursion.

mod common;

use common::{assert_empty, below, blocks, names, worker};
use kvradix::{Block, Event, Index, LocalHash, WorkerId};

const A: WorkerId = worker(1);
const B: WorkerId = worker(2);
/// Less without optimisation: recursion would end the stack there, too,
/// and the million takes minutes.
const DEEP: u64 = if cfg!(debug_assertions) { 40_000 } else { 1_000_000 };

fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    let small = std::thread::Builder::new().stack_size(256 << 10);
    small.spawn(run).unwrap().join().unwrap();
}

/// The chain's contents, one after the other.
fn contents() -> Vec<u64> {
    (0..DEEP).map(|depth| depth % 7).collect()
}

fn chain() -> Vec<Block> {
    blocks((0..DEEP).map(|depth| (depth, depth % 7)))
}

fn stored(events: &[Event]) -> usize {
    let blocks = |event: &Event| match event {
        Event::Stored { blocks, .. } => blocks.len(),
        _ => 0,
    };
    events.iter().map(blocks).sum()
}

fn depth(index: &Index, contents: &[u64]) -> u64 {
    index.matches(LocalHash::from_slice(contents)).depth_of(A).into()
}

/// What is done to each deep chain of worker `A`. What is left is dropped on
/// the caller's small stack.
fn exercise(index: &Index) {
    let contents = contents();
    assert_eq!(depth(index, &contents), DEEP);
    let events = index.export(A);
    assert_eq!(stored(&events) as u64, DEEP);

    // A hole at the top and one in the middle, and a whole tail.
    index.remove(A, &names([0, DEEP / 2]));
    index.flush();
    assert_eq!(depth(index, &contents), 0);
    assert_eq!(index.stats().tree_blocks, DEEP);
    index.store(A, None, &blocks([(0, 0)])).unwrap();
    assert_eq!(depth(index, &contents), DEEP / 2);
    index.remove(A, &names((DEEP / 2 + 1..DEEP).rev()));
    index.flush();
    assert_eq!(index.stats().tree_blocks, DEEP / 2);

    // One block at the end keeps all that is above it, until it goes.
    index.remove(A, &names(0..DEEP / 2 - 1));
    index.flush();
    assert_eq!((index.stats().tree_blocks, index.stats().held_blocks), (DEEP / 2, 1));
    index.remove(A, &names([DEEP / 2 - 1]));
    assert_empty(index);

    assert_eq!(index.apply_all(&events), []);
    assert_eq!(depth(index, &contents), DEEP);
    index.clear(A);
    assert_empty(index);
    assert_eq!(index.apply_all(&events), []);
    index.remove_worker(A);
    assert_empty(index);
    assert_eq!(index.apply_all(&events), []);
}

#[test]
fn a_chain_of_a_million_blocks_in_one_store() {
    on_a_small_stack(|| {
        let index = Index::new();
        index.store(A, None, &chain()).unwrap();
        exercise(&index);
    });
}

/// Runs of one block each: every block is a node.
#[test]
fn a_chain_of_a_million_nodes_in_one_store() {
    on_a_small_stack(|| {
        let index = Index::builder().run_blocks(1).build();
        index.store(A, None, &chain()).unwrap();
        assert_eq!(index.stats().nodes, DEEP);
        exercise(&index);
    });
}

/// No store can append: below each block another worker has stored a sibling
/// first, and the chain's next block must be a node of its own.
#[test]
fn a_chain_of_a_million_branches() {
    on_a_small_stack(|| {
        let index = Index::new();
        let mut parent = None;
        for (depth, content) in contents().into_iter().enumerate() {
            let depth = depth as u64;
            index.store(B, parent, &blocks([(DEEP, 99)])).unwrap();
            // B goes down with the chain, and leaves the block above.
            index.store(B, parent, &blocks([(depth, content)])).unwrap();
            index.store(A, parent, &blocks([(depth, content)])).unwrap();
            parent = below(depth);
        }
        index.remove_worker(B);
        index.flush();
        assert_eq!(index.stats().tree_blocks, DEEP);
        assert!(index.stats().nodes > DEEP / 3, "{:?}", index.stats());
        exercise(&index);
    });
}

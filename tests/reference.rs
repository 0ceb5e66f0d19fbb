//! The reference is held to the contract by hand, sentence by sentence: what
//! it answers is what the index is compared with.

use kvradix::reference::ReferenceIndex;
use kvradix::{Block, Event, LocalHash, SequenceHash, StoreError, WorkerId};

const A: WorkerId = WorkerId::new(1, 0);
const B: WorkerId = WorkerId::new(2, 0);

/// Blocks of the given names and contents.
fn blocks(pairs: &[(u64, u64)]) -> Vec<Block> {
    let block =
        |&(name, content)| Block { sequence: SequenceHash(name), local: LocalHash(content) };
    pairs.iter().map(block).collect()
}

fn names(names: &[u64]) -> Vec<SequenceHash> {
    names.iter().copied().map(SequenceHash).collect()
}

fn depth(index: &ReferenceIndex, worker: WorkerId, query: &[u64]) -> u32 {
    index.matches(LocalHash::from_slice(query)).depth_of(worker)
}

/// Worker `A` with the chain 1, 2, 3 under the names 10, 20, 30.
fn chain() -> ReferenceIndex {
    let mut index = ReferenceIndex::new();
    index.store(A, None, &blocks(&[(10, 1), (20, 2), (30, 3)])).unwrap();
    index
}

#[test]
fn a_chain_matches_as_far_as_the_query_follows_it() {
    let index = chain();
    assert_eq!(depth(&index, A, &[1, 2, 3]), 3);
    assert_eq!(depth(&index, A, &[1, 2, 3, 4]), 3);
    assert_eq!(depth(&index, A, &[1, 2]), 2);
    assert_eq!(depth(&index, A, &[1, 9, 3]), 1);
    assert!(index.matches(LocalHash::from_slice(&[2, 3])).is_empty());
    assert!(index.matches(&[]).is_empty());
}

#[test]
fn each_worker_has_its_own_depth_and_the_deepest_comes_first() {
    let mut index = chain();
    index.store(B, None, &blocks(&[(7, 1)])).unwrap();
    let matches = index.matches(LocalHash::from_slice(&[1, 2, 3]));
    let found: Vec<_> = matches.iter().map(|found| (found.worker, found.depth)).collect();
    assert_eq!(found, [(A, 3), (B, 1)]);
    index.remove(A, &names(&[20]));
    let matches = index.matches(LocalHash::from_slice(&[1, 2, 3]));
    assert_eq!(matches.best().unwrap().worker, A, "the lowest id of two as deep");
}

#[test]
fn a_hole_ends_the_prefix_until_it_is_stored_again() {
    let mut index = chain();
    index.remove(A, &names(&[20]));
    assert_eq!(depth(&index, A, &[1, 2, 3]), 1);
    assert_eq!((index.stats().tree_blocks, index.held_places()), (3, 2));
    index.store(A, Some(SequenceHash(10)), &blocks(&[(21, 2)])).unwrap();
    assert_eq!(depth(&index, A, &[1, 2, 3]), 3);
}

#[test]
fn a_place_is_held_while_one_of_its_names_is_there() {
    let mut index = chain();
    index.store(A, Some(SequenceHash(10)), &blocks(&[(22, 2)])).unwrap();
    assert_eq!((index.stats().held_blocks, index.held_places()), (4, 3));
    index.remove(A, &names(&[20]));
    assert_eq!(depth(&index, A, &[1, 2, 3]), 3);
    index.remove(A, &names(&[22]));
    assert_eq!(depth(&index, A, &[1, 2, 3]), 1);
}

#[test]
fn a_name_stored_again_moves_and_what_is_below_stays() {
    let mut index = chain();
    index.store(A, None, &blocks(&[(20, 5)])).unwrap();
    assert_eq!(depth(&index, A, &[5]), 1);
    assert_eq!(depth(&index, A, &[1, 2, 3]), 1);
    assert_eq!(index.held(A), 3);
    // 30 is still at 1, 2, 3: places are paths, not links.
    index.store(A, Some(SequenceHash(30)), &blocks(&[(40, 4)])).unwrap();
    index.store(A, Some(SequenceHash(10)), &blocks(&[(50, 2)])).unwrap();
    assert_eq!(depth(&index, A, &[1, 2, 3, 4]), 4);
}

#[test]
fn a_batch_may_move_an_ancestor_below_itself() {
    let mut index = chain();
    index.store(A, Some(SequenceHash(30)), &blocks(&[(10, 4), (20, 5)])).unwrap();
    assert_eq!(index.held(A), 3);
    assert_eq!((index.stats().tree_blocks, index.held_places()), (5, 3));
    assert_eq!(depth(&index, A, &[1, 2, 3, 4, 5]), 0);
    index.store(A, None, &blocks(&[(11, 1), (21, 2)])).unwrap();
    assert_eq!(depth(&index, A, &[1, 2, 3, 4, 5]), 5);
}

#[test]
fn a_name_is_its_workers_own_to_remove() {
    let mut index = chain();
    index.store(B, None, &blocks(&[(11, 1), (30, 9)])).unwrap();
    index.remove(B, &names(&[10, 20]));
    assert_eq!(index.stats().unknown_removals, 2);
    index.remove(B, &names(&[30]));
    assert_eq!(depth(&index, A, &[1, 2, 3]), 3);
    assert_eq!(depth(&index, B, &[1, 9]), 1);
}

#[test]
fn a_repeated_name_is_found_before_an_unknown_parent_and_nothing_changes() {
    let mut index = chain();
    let repeated = |hash| StoreError::RepeatedHash { worker: A, hash: SequenceHash(hash) };
    let unknown = Some(SequenceHash(77));
    assert_eq!(index.store(A, unknown, &blocks(&[(4, 4), (5, 5), (4, 6)])), Err(repeated(4)));
    assert_eq!(index.store(A, unknown, &blocks(&[(4, 4), (77, 5)])), Err(repeated(77)));
    assert_eq!(
        index.store(A, unknown, &blocks(&[(4, 4)])),
        Err(StoreError::ParentNotFound { worker: A, parent: SequenceHash(77) })
    );
    assert_eq!(index.stats().refused_blocks, 6);
    assert_eq!((index.held(A), index.stats().tree_blocks), (3, 3));
}

#[test]
fn no_blocks_are_never_refused_and_make_nobody_known() {
    let mut index = ReferenceIndex::new();
    assert_eq!(index.store(A, None, &[]), Ok(()));
    assert_eq!(index.store(A, Some(SequenceHash(1)), &[]), Ok(()));
    assert_eq!((index.workers(), index.stats().refused_blocks), (vec![], 0));
}

#[test]
fn only_an_accepted_store_makes_a_worker_known() {
    let mut index = ReferenceIndex::new();
    index.clear(A);
    index.remove(A, &names(&[1, 2]));
    index.remove_worker(A);
    index.store(A, Some(SequenceHash(1)), &blocks(&[(2, 2)])).unwrap_err();
    assert_eq!((index.workers(), index.stats().unknown_removals), (vec![], 2));
    index.store(A, None, &blocks(&[(2, 2)])).unwrap();
    assert_eq!(index.workers(), [A]);
}

#[test]
fn a_cleared_worker_stays_known_and_a_removed_one_does_not() {
    let mut index = chain();
    index.clear(A);
    assert_eq!((index.workers(), index.held(A), index.stats().tree_blocks), (vec![A], 0, 0));
    index.remove_worker(A);
    assert_eq!(index.workers(), []);
}

#[test]
fn all_ranks_of_a_worker_leave_together() {
    let mut index = chain();
    index.store(WorkerId::new(1, 1), None, &blocks(&[(1, 1)])).unwrap();
    index.store(B, None, &blocks(&[(1, 1)])).unwrap();
    index.remove_ranks(1);
    assert_eq!(index.workers(), [B]);
    assert_eq!(index.stats().tree_blocks, 1);
}

#[test]
fn a_refused_event_does_not_stop_the_others() {
    let mut index = ReferenceIndex::new();
    let events = [
        Event::Stored { worker: A, parent: Some(SequenceHash(9)), blocks: blocks(&[(1, 1)]) },
        Event::Stored { worker: A, parent: None, blocks: blocks(&[(1, 1), (2, 2)]) },
        Event::Removed { worker: A, names: names(&[2]) },
    ];
    let refused = index.apply_all(&events);
    assert_eq!(refused.iter().map(|refused| refused.index).collect::<Vec<_>>(), [0]);
    assert_eq!(depth(&index, A, &[1, 2]), 1);
}

#[test]
fn an_export_loads_to_the_same_holes_and_names() {
    let mut index = chain();
    index.store(A, Some(SequenceHash(10)), &blocks(&[(0, 7), (1, 8)])).unwrap();
    index.store(A, None, &blocks(&[(11, 1)])).unwrap();
    index.remove(A, &names(&[20, 0]));
    index.store(B, None, &blocks(&[(1, 99)])).unwrap();

    let events = index.export(A);
    let mut loaded = ReferenceIndex::new();
    assert_eq!(loaded.apply_all(&events), []);
    assert_eq!(loaded.held(A), 4);
    for name in [10, 11, 30, 1] {
        assert!(loaded.has(A, SequenceHash(name)), "{name}");
    }
    assert_eq!((loaded.stats().tree_blocks, loaded.held_places()), (5, 3));
    assert_eq!(loaded.stats().unknown_removals, 0);
    loaded.store(A, Some(SequenceHash(10)), &blocks(&[(20, 2), (25, 7)])).unwrap();
    assert_eq!(depth(&loaded, A, &[1, 2, 3]), 3);
    assert!(index.export(WorkerId::new(5, 0)).is_empty());
}

#[test]
fn nothing_is_kept_of_what_nobody_holds() {
    let mut index = chain();
    for suffix in 100..200 {
        let parent = Some(SequenceHash(30));
        index.store(A, parent, &blocks(&[(suffix, suffix), (suffix + 500, suffix)])).unwrap();
        index.remove(A, &names(&[suffix, suffix + 500]));
    }
    assert_eq!((index.stats().tree_blocks, index.stats().held_blocks), (3, 3));
}

#[test]
fn a_chain_can_be_very_deep_on_a_small_stack() {
    let small = std::thread::Builder::new().stack_size(256 << 10);
    let run = || {
        let mut index = ReferenceIndex::new();
        let long: Vec<_> = (0..100_000).map(|i| (i, i)).collect();
        index.store(A, None, &blocks(&long)).unwrap();
        let query: Vec<_> = (0..100_000).collect();
        assert_eq!(depth(&index, A, &query), 100_000);
        index.remove(A, &names(&(0..99_999).collect::<Vec<_>>()));
        assert_eq!(index.stats().tree_blocks, 100_000);
        assert_eq!(index.export(A).len(), 2);
        index.clear(A);
        assert_eq!(index.stats().tree_blocks, 0);
    };
    small.spawn(run).unwrap().join().unwrap();
}

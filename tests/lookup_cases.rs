//! The lookup has one entry for a name, however many workers use it and
//! whatever for. These are the cases in which a shared entry could answer
//! for the wrong worker or the wrong place.

mod common;

use common::compare::under_every_setup;
use common::{answer, assert_empty, below, block, blocks, depth, names, query, worker};
use kvradix::reference::ReferenceIndex;
use kvradix::{Event, Index, SequenceHash, StoreError};

const A: kvradix::WorkerId = worker(1);
const B: kvradix::WorkerId = worker(2);
const C: kvradix::WorkerId = worker(3);

#[test]
fn a_name_that_two_use_elsewhere_is_removed_by_one_of_them_only() {
    under_every_setup(|index| {
        index.store(A, None, &blocks([(7, 1)])).unwrap();
        index.store(B, None, &blocks([(7, 2)])).unwrap();
        index.store(C, None, &blocks([(7, 2)])).unwrap();
        index.remove(C, &names([7]));
        assert_eq!(depth(index, A, &[1]), 1);
        assert_eq!(depth(index, B, &[2]), 1);
        assert_eq!(depth(index, C, &[2]), 0);
        assert_eq!(index.stats().unknown_removals, 0);

        // The name still is a parent, for each at its own place.
        index.store(A, below(7), &blocks([(8, 3)])).unwrap();
        index.store(B, below(7), &blocks([(8, 3)])).unwrap();
        let refused = index.store(C, below(7), &blocks([(8, 3)]));
        assert!(matches!(refused, Err(StoreError::ParentNotFound { .. })));
        assert_eq!((depth(index, A, &[1, 3]), depth(index, B, &[2, 3])), (2, 2));

        // The place that the entry names goes first; the other name stays.
        index.remove(A, &names([7, 8]));
        assert_eq!((depth(index, A, &[1, 3]), depth(index, B, &[2, 3])), (0, 2));
        index.store(C, None, &blocks([(7, 2), (8, 3)])).unwrap();
        index.remove(B, &names([8, 7]));
        assert_eq!((depth(index, B, &[2, 3]), depth(index, C, &[2, 3])), (0, 2));
        index.remove(C, &names([8, 7]));
        assert_empty(index);
        assert_eq!(index.stats().unknown_removals, 0);
    });
}

#[test]
fn a_name_that_two_use_elsewhere_in_the_midst_of_runs() {
    under_every_setup(|index| {
        index.store(A, None, &blocks([(1, 1), (7, 2), (3, 3)])).unwrap();
        index.store(B, None, &blocks([(4, 4), (5, 5), (7, 6), (8, 7)])).unwrap();
        index.store(C, None, &blocks([(4, 4), (5, 5), (7, 6), (8, 7)])).unwrap();
        index.remove(C, &names([7]));
        assert_eq!(depth(index, A, &[1, 2, 3]), 3);
        assert_eq!(depth(index, B, &[4, 5, 6, 7]), 4);
        assert_eq!(depth(index, C, &[4, 5, 6, 7]), 2);
        index.store(C, below(5), &blocks([(70, 6)])).unwrap();
        assert_eq!(depth(index, C, &[4, 5, 6, 7]), 4);
        index.remove(A, &names([7]));
        index.remove(B, &names([7]));
        assert_eq!(depth(index, A, &[1, 2, 3]), 1);
        assert_eq!(depth(index, B, &[4, 5, 6, 7]), 2);
        assert_eq!(depth(index, C, &[4, 5, 6, 7]), 4);
        index.remove(C, &names([7]));
        assert_eq!(depth(index, C, &[4, 5, 6, 7]), 4);
        assert_eq!(index.stats().unknown_removals, 1);
        for gone in [A, B, C] {
            index.clear(gone);
        }
        assert_empty(index);
    });
}

#[test]
fn a_name_of_another_worker_is_not_ones_own_to_remove_at_the_same_place() {
    under_every_setup(|index| {
        index.store(A, None, &blocks([(10, 1), (11, 2), (12, 3)])).unwrap();
        index.store(B, None, &blocks([(20, 1), (21, 2), (22, 3)])).unwrap();
        index.remove(B, &names([10, 11, 12]));
        index.remove(A, &names([21]));
        assert_eq!((depth(index, A, &[1, 2, 3]), depth(index, B, &[1, 2, 3])), (3, 3));
        assert_eq!(index.stats().unknown_removals, 4);
        assert!(!index.has(B, names([11])[0]) && index.has(A, names([11])[0]));
        let refused = index.store(B, below(12), &blocks([(23, 4)]));
        assert!(matches!(refused, Err(StoreError::ParentNotFound { .. })));

        // The one whose name stands in the tree goes; the other's still works.
        index.remove(A, &names([10, 11, 12]));
        assert_eq!((depth(index, A, &[1, 2, 3]), depth(index, B, &[1, 2, 3])), (0, 3));
        index.store(B, below(22), &blocks([(23, 4)])).unwrap();
        assert_eq!(depth(index, B, &[1, 2, 3, 4]), 4);
        index.remove(B, &names([20, 21, 22, 23]));
        assert_empty(index);
        assert_eq!(index.stats().unknown_removals, 4);
    });
}

#[test]
fn a_name_of_another_worker_that_one_has_elsewhere_is_removed_there() {
    under_every_setup(|index| {
        index.store(A, None, &blocks([(10, 1), (11, 2)])).unwrap();
        // B holds A's first place under 11, which is A's name for the second.
        index.store(B, None, &blocks([(11, 1), (10, 2)])).unwrap();
        index.remove(B, &names([10]));
        assert_eq!((depth(index, A, &[1, 2]), depth(index, B, &[1, 2])), (2, 1));
        index.remove(A, &names([11]));
        assert_eq!((depth(index, A, &[1, 2]), depth(index, B, &[1, 2])), (1, 1));
        index.remove(B, &names([11]));
        assert_eq!((depth(index, A, &[1, 2]), depth(index, B, &[1, 2])), (1, 0));
        index.remove(A, &names([10]));
        assert_empty(index);
        assert_eq!(index.stats().unknown_removals, 0);
    });
}

#[test]
fn one_run_carries_a_name_twice() {
    under_every_setup(|index| {
        let chain = blocks([(1, 1), (2, 2), (3, 3)]);
        index.store(A, None, &chain).unwrap();
        index.store(B, None, &chain).unwrap();
        // For A the name 2 now is the fourth block, for B still the second.
        index.store(A, below(3), &blocks([(2, 4), (5, 5)])).unwrap();
        index.store(B, below(3), &blocks([(4, 4), (5, 5)])).unwrap();
        let both = |index: &kvradix::Index| {
            (depth(index, A, &[1, 2, 3, 4, 5]), depth(index, B, &[1, 2, 3, 4, 5]))
        };
        assert_eq!(both(index), (1, 5));
        // A gets its second block back, under a name that B does not have.
        index.store(A, below(1), &blocks([(6, 2)])).unwrap();
        assert_eq!(both(index), (5, 5));
        index.remove(A, &names([2]));
        assert_eq!(both(index), (3, 5));
        index.remove(B, &names([2]));
        assert_eq!(both(index), (3, 1));
        index.store(B, below(1), &blocks([(2, 2)])).unwrap();
        index.store(A, below(3), &blocks([(2, 4)])).unwrap();
        assert_eq!(both(index), (5, 5));
        index.remove(B, &names([1, 2, 3, 4, 5]));
        assert_eq!(both(index), (5, 0));
        index.remove(A, &names([1, 2, 3, 5, 6]));
        assert_empty(index);
        assert_eq!(index.stats().unknown_removals, 0);
    });
}

#[test]
fn one_worker_alone_leaves_a_name_twice_in_a_run() {
    under_every_setup(|index| {
        // The second block loses its name to the fourth and stays as an
        // ancestor that nobody holds.
        index.store(A, None, &blocks([(1, 1), (2, 2), (3, 3)])).unwrap();
        index.store(A, below(3), &blocks([(2, 4)])).unwrap();
        assert_eq!((index.held(A), depth(index, A, &[1, 2, 3, 4])), (3, 1));
        assert_eq!(index.stats().tree_blocks, 4);
        // Somebody else takes the ancestor again by the name it once had.
        index.store(B, None, &blocks([(1, 1), (2, 2)])).unwrap();
        index.remove(B, &names([2]));
        assert_eq!((depth(index, B, &[1, 2]), index.held(A)), (1, 3));
        assert!(index.has(A, names([2])[0]));
        index.store(A, below(1), &blocks([(9, 2)])).unwrap();
        assert_eq!(depth(index, A, &[1, 2, 3, 4]), 4);
        index.remove(A, &names([2]));
        assert_eq!(depth(index, A, &[1, 2, 3, 4]), 3);
        index.remove_worker(A);
        index.remove_worker(B);
        assert_empty(index);
    });
}

/// While a batch is on its way, a private name that it moves is out of the
/// private map and not yet given up at its old place: the place is still held
/// by it alone, and taking it by its canonical name is one name more.
#[test]
fn a_private_name_moves_away_from_a_place_that_the_same_batch_takes_by_another() {
    under_every_setup(|index| {
        // B makes two nodes, 1 2 and below it 3 (9 branches off first).
        index.store(B, None, &blocks([(1, 1), (2, 2), (9, 9)])).unwrap();
        index.store(B, below(2), &blocks([(3, 3)])).unwrap();
        // A holds the third block by the first one's name, then moves the
        // name back and takes the third block by its own.
        index.store(A, None, &blocks([(1, 1), (2, 2)])).unwrap();
        index.store(A, below(2), &blocks([(1, 3)])).unwrap();
        assert_eq!((depth(index, A, &[1, 2, 3]), index.held(A)), (0, 2));
        index.store(A, None, &blocks([(1, 1), (2, 2), (3, 3)])).unwrap();
        assert_eq!((depth(index, A, &[1, 2, 3]), index.held(A)), (3, 3));
        index.remove(A, &names([1, 2, 3]));
        assert_eq!(depth(index, B, &[1, 2, 3]), 3);
        assert_eq!((index.held(A), index.stats().unknown_removals), (0, 0));
        index.remove_worker(B);
        assert_empty(index);
    });
}

#[test]
fn an_ancestor_that_was_only_passed_through_is_found_again_when_it_is_taken() {
    under_every_setup(|index| {
        index.store(A, None, &blocks([(1, 1), (2, 2), (3, 3)])).unwrap();
        index.remove(A, &names([1, 2]));
        index.flush();
        assert_eq!(index.stats().lookup_entries, 1);
        index.store(A, None, &blocks([(1, 1), (2, 2)])).unwrap();
        assert_eq!((depth(index, A, &[1, 2, 3]), index.stats().lookup_entries), (3, 3));
        index.store(A, below(2), &blocks([(4, 4)])).unwrap();
        index.remove(A, &names([2]));
        assert_eq!((depth(index, A, &[1, 2, 4]), index.stats().unknown_removals), (1, 0));
    });
}

/// Long batches are brought together by the lookup's shards, a part of 1,024
/// after the other, and a run has 4,096 blocks: lengths around all of these, of
/// names that the worker has nowhere, that another has elsewhere, that it has
/// elsewhere itself, and of blocks that are partly there.
#[test]
fn batches_of_any_length_are_named_and_unnamed_as_the_reference_does() {
    const FAR: u64 = 1 << 32;
    for length in [31, 32, 33, 127, 128, 129, 1_023, 1_024, 1_025, 4_096, 4_097, 5_000] {
        for (case, clash, moved, there) in
            [("new", 0, 0, 0), ("clash", 3, 0, 0), ("move", 0, 3, 0), ("all", 3, 5, length / 2)]
        {
            let every = |at: u64, turn: u64| turn > 0 && at % turn == 1;
            let batch: Vec<_> = (0..length).map(|at| block(at, at)).collect();
            let part = |turn: u64| (0..length).filter(move |at| every(*at, turn));
            let elsewhere = |turn| part(turn).map(|at| block(at, FAR + at)).collect::<Vec<_>>();
            let all = || (0..length).map(SequenceHash);
            let odd = || all().filter(|name| name.0 % 7 == 3).collect::<Vec<_>>();
            let removals = [
                all().rev().collect::<Vec<_>>(),
                all().collect(),
                odd().into_iter().chain(all()).collect(),
                odd(),
            ];
            for removed in removals {
                let steps = [
                    Event::Stored { worker: B, parent: None, blocks: elsewhere(clash) },
                    Event::Stored { worker: A, parent: None, blocks: elsewhere(moved) },
                    Event::Stored {
                        worker: C,
                        parent: None,
                        blocks: batch[..there as usize].into(),
                    },
                    Event::Stored { worker: A, parent: None, blocks: batch.clone() },
                    Event::Removed { worker: C, names: all().take(there as usize / 2).collect() },
                    Event::Removed { worker: A, names: removed },
                    Event::Stored { worker: A, parent: None, blocks: batch.clone() },
                    Event::Cleared { worker: A },
                    Event::Stored { worker: C, parent: None, blocks: batch.clone() },
                ];
                let (index, mut reference) = (Index::new(), ReferenceIndex::new());
                for step in steps {
                    assert_eq!(index.apply(&step), reference.apply(&step), "{length}, {case}");
                    index.flush();
                    index.check();
                    for from in [0, FAR] {
                        let query: Vec<_> = query((from..from + length).chain([9]));
                        let expected = answer(&reference.matches(&query));
                        assert_eq!(answer(&index.matches(&query)), expected, "{length}, {case}");
                    }
                    for worker in [A, B, C] {
                        assert_eq!(index.held(worker), reference.held(worker), "{length}, {case}");
                    }
                }
                for worker in [A, B, C] {
                    index.remove_worker(worker);
                }
                assert_empty(&index);
            }
        }
    }
}

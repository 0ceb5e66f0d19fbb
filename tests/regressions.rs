//! The fault this index starts from: branches that nobody holds any more
//! stayed in the tree. One test for each of the three rules that mend it.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::compare::under_every_setup;
use common::{assert_empty, below, blocks, depth, names, worker};
use kvradix::{Index, LocalHash};

const A: kvradix::WorkerId = worker(1);
const B: kvradix::WorkerId = worker(2);
const C: kvradix::WorkerId = worker(3);

/// A branch that loses its last owner is detached at once.
///
/// Fails without `self.detach(..)` in `Tree::finish` (src/tree/release.rs), and
/// without `edit.trim(..)` in `Tree::finish` or in `Tree::unlink`.
#[test]
fn unique_suffixes_under_a_kept_prompt_release_everything() {
    under_every_setup(|index| {
        index.store(A, None, &blocks((0..16).map(|i| (i, i)))).unwrap();
        let suffix = |number: u64| (0..8).map(move |i| 1000 + number * 8 + i);
        // Suffixes that came and went before the count, as in a long run.
        for number in 0..10 {
            index.store(A, below(15), &blocks(suffix(number).map(|i| (i, i)))).unwrap();
            index.remove(A, &names(suffix(number)));
        }
        index.flush();
        let before = index.stats();
        assert_eq!((before.tree_blocks, before.held_blocks, before.lookup_entries), (16, 16, 16));

        for number in 10..400 {
            index.store(A, below(15), &blocks(suffix(number).map(|i| (i, i)))).unwrap();
            index.remove(A, &names(suffix(number)));
            // Several at once, side by side, go as well.
            if number % 7 == 0 {
                for next in number + 1000..number + 1005 {
                    index.store(A, below(15), &blocks(suffix(next).map(|i| (i, i)))).unwrap();
                }
                index.remove(A, &names((number + 1000..number + 1005).flat_map(suffix)));
            }
        }
        index.flush();
        let after = index.stats();
        assert_eq!(after.nodes, before.nodes);
        assert_eq!(after.tree_blocks, before.tree_blocks);
        assert_eq!(after.held_blocks, before.held_blocks);
        assert_eq!(after.lookup_entries, before.lookup_entries);
        assert_eq!(after.unknown_removals, 0);
        index.clear(A);
        assert_empty(index);
    });
}

/// The branch of one worker goes while another takes a branch at the same
/// key: what the second has stored stays.
///
/// A branch that was emptied is looked at again, and its parent's slot
/// compared with it, before it is detached. Two workers take and leave one
/// and the same branch, so that each one's detach meets what the other has
/// put there meanwhile; a third one's branches beside it keep it a node of its
/// own, below a parent with few children or with a table of them.
///
/// Fails without `child.view(guard).len() > 0`, the second look at the child,
/// in either half of `Tree::unlink` (src/tree/release.rs).
#[test]
fn a_stale_detach_leaves_the_replacement() {
    fn take_and_leave(index: &Index, who: kvradix::WorkerId, base: u64, rounds: usize) {
        let branch = names([base + 2, base + 3]);
        index.store(who, None, &blocks([(base, 0), (base + 1, 1)])).unwrap();
        for round in 0..rounds {
            index.store(who, below(base + 1), &blocks([(base + 2, 2), (base + 3, 3)])).unwrap();
            let seen = index.matches(LocalHash::from_slice(&[0, 1, 2, 3])).depth_of(who);
            assert_eq!(seen, 4, "round {round}: {who} just stored it");
            index.remove(who, &branch);
            if round % 3 == 0 {
                index.flush_worker(who);
            }
        }
    }
    // The window is short: the more rounds, the surer it is met.
    let rounds = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    under_every_setup(|index| {
        for (siblings, names_of_b) in [(1, 100), (1, 200), (40, 100), (40, 200)] {
            index.store(C, None, &blocks([(100, 0), (101, 1)])).unwrap();
            for sibling in 0..siblings {
                let sibling = 1000 + sibling;
                index.store(C, below(101), &blocks([(sibling, sibling)])).unwrap();
            }
            std::thread::scope(|scope| {
                scope.spawn(|| take_and_leave(index, A, 100, rounds));
                take_and_leave(index, B, names_of_b, rounds);
            });
            index.flush();
            index.check();
            assert_eq!(index.stats().tree_blocks, 2 + siblings);
            assert_eq!(index.stats().held_blocks, 6 + siblings);
            for who in [A, B, C] {
                index.remove_worker(who);
            }
            assert_empty(index);
        }
    });
}

/// What is queued when the branch is stored again belongs to the time before.
#[test]
fn a_removal_handed_in_before_leaves_what_was_stored_after() {
    under_every_setup(|index| {
        index.store(A, None, &blocks([(1, 1), (2, 2)])).unwrap();
        index.remove(A, &names([2]));
        index.store(A, below(1), &blocks([(2, 2)])).unwrap();
        assert_eq!(depth(index, A, &[1, 2]), 2);
        index.remove(A, &names([2]));
        index.store(B, None, &blocks([(1, 1), (2, 2)])).unwrap();
        assert_eq!((depth(index, A, &[1, 2]), depth(index, B, &[1, 2])), (1, 2));
    });
}

/// A tail that nobody holds does not stay, so a later branch at that point
/// finds no old sibling.
///
/// Fails without `edit.trim(..)` in `Tree::finish` (src/tree/release.rs).
#[test]
fn a_tail_left_ownerless_does_not_survive_a_later_branch_at_that_point() {
    under_every_setup(|index| {
        index.store(A, None, &blocks((1..=4).map(|i| (i, i)))).unwrap();
        index.store(B, None, &blocks([(1, 1), (2, 2)])).unwrap();
        index.remove(A, &names([4, 3]));
        index.flush();
        assert_eq!(index.stats().tree_blocks, 2);
        index.store(B, below(2), &blocks([(9, 9)])).unwrap();
        index.store(A, below(2), &blocks([(8, 8)])).unwrap();
        assert_eq!((depth(index, A, &[1, 2, 3, 4]), depth(index, B, &[1, 2, 9])), (2, 3));
        assert_eq!((index.stats().tree_blocks, index.stats().lookup_entries), (4, 4));
        index.clear(A);
        index.clear(B);
        assert_empty(index);
    });
}

/// The branch comes first, then the tail beside it loses its owner.
///
/// Fails without `edit.trim(..)` in `Tree::finish` or in `Tree::unlink`
/// (src/tree/release.rs).
#[test]
fn a_tail_beside_a_branch_goes_with_its_last_owner() {
    under_every_setup(|index| {
        index.store(A, None, &blocks((1..=6).map(|i| (i, i)))).unwrap();
        index.store(B, None, &blocks([(1, 1), (2, 2), (9, 9)])).unwrap();
        index.remove(A, &names([3, 5, 6]));
        index.flush();
        // The fourth block keeps the third as its ancestor.
        assert_eq!((index.stats().tree_blocks, index.stats().lookup_entries), (5, 4));
        index.remove(A, &names([4]));
        index.flush();
        index.check();
        assert_eq!((index.stats().tree_blocks, index.stats().lookup_entries), (3, 3));
        index.store(B, below(2), &blocks([(3, 3), (4, 7)])).unwrap();
        assert_eq!((depth(index, A, &[1, 2, 3]), depth(index, B, &[1, 2, 3, 7])), (2, 4));
        // The last branch holds up what is above it, until it goes.
        index.remove(B, &names([1, 2, 3, 9]));
        index.remove_worker(A);
        index.flush();
        assert_eq!(index.stats().tree_blocks, 4);
        index.remove(B, &names([4]));
        assert_empty(index);
    });
}

/// The same where the branches are so many that their parent has a table of
/// them: the tail goes with the last branch that held it up.
///
/// Fails without `edit.trim(..)` in `Tree::settle` (src/tree/release.rs).
#[test]
fn a_tail_above_a_table_of_branches_goes_with_the_last_of_them() {
    under_every_setup(|index| {
        let (upper, lower) = (100..130, 200..230);
        index.store(A, None, &blocks((1..=4).map(|i| (i, i)))).unwrap();
        for (parent, branches) in [(2, &upper), (4, &lower)] {
            for branch in branches.clone() {
                index.store(A, below(parent), &blocks([(branch, branch)])).unwrap();
            }
        }
        index.remove(A, &names(1..=4));
        index.flush();
        assert_eq!((index.stats().tree_blocks, index.stats().lookup_entries), (64, 60));
        for branch in lower {
            index.remove(A, &names([branch]));
        }
        index.flush();
        index.check();
        assert_eq!((index.stats().tree_blocks, index.stats().lookup_entries), (32, 30));
        for branch in upper {
            index.remove(A, &names([branch]));
        }
        assert_empty(index);
    });
}

/// A reader beside all this sees the prompt whole.
#[test]
fn a_kept_prompt_is_seen_whole_while_suffixes_come_and_go() {
    under_every_setup(|index| {
        index.store(A, None, &blocks((0..16).map(|i| (i, i)))).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..1500 {
                    let suffix = || (0..8).map(|i| number * 100 + i);
                    index.store(A, below(15), &blocks(suffix().map(|i| (i, i)))).unwrap();
                    index.remove(A, &names(suffix().rev()));
                }
                done.store(true, Ordering::Release);
            });
            let query: Vec<u64> = (0..17).collect();
            while !done.load(Ordering::Acquire) {
                assert_eq!(index.matches(LocalHash::from_slice(&query)).depth_of(A), 16);
            }
        });
    });
}

//! Panics on several threads at once: writers, readers and the index's own.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kvradix::fault::{self, Fault};
use kvradix::reference::ReferenceIndex;
use kvradix::{Index, LocalHash, Matches, StoreError, WorkerId};
use kvradix_fault_tests::{in_time, survive};
use rand::prelude::*;
use rand::rngs::SmallRng;

use crate::common::stream::{Mode, Naming, Op, streams};
use crate::common::{below, blocks, depth, names, query, worker};

const KEPT: WorkerId = worker(900);
const CHAIN: u64 = 40;
/// Most blocks of a tree whose limit is met.
const LIMIT: u64 = 120;

fn chain() -> Vec<kvradix::Block> {
    blocks((0..CHAIN).map(|n| (n, n % 2)))
}

/// One writer, whose thread panics now and then; what its workers hold in the
/// end, as events.
fn write(index: &Index, ops: &[Op], seed: u64) -> Vec<Op> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut poisoned = BTreeSet::new();
    let mut done = Vec::new();
    for op in ops {
        let (Op::Store { worker, .. }
        | Op::Remove { worker, .. }
        | Op::Clear { worker }
        | Op::Leave { worker }) = op
        else {
            continue;
        };
        if rng.random_ratio(1, 4) {
            fault::arm(rng.random_range(0..80));
        }
        let mut full = false;
        let applied = survive(|| match op {
            Op::Store { worker, parent, blocks } => {
                let stored = index.store(*worker, *parent, blocks);
                full = matches!(
                    stored,
                    Err(StoreError::IndexFull { .. } | StoreError::WorkerFull { .. })
                );
            }
            Op::Remove { worker, names } => index.remove(*worker, names),
            Op::Clear { worker } => index.clear(*worker),
            _ => index.remove_worker(*worker),
        });
        fault::disarm();
        if full && applied.is_ok() {
            // Refused whole.
            continue;
        }
        let heals = matches!(op, Op::Clear { .. } | Op::Leave { .. });
        if applied.is_err() {
            poisoned.insert(*worker);
        } else if !poisoned.contains(worker) {
            done.push(op.clone());
            continue;
        } else if heals {
            poisoned.remove(worker);
            done.push(Op::Leave { worker: *worker });
            if index.workers().contains(worker) {
                // Known, and has nothing.
                let blocks = blocks([(1, 1)]);
                done.push(Op::Store { worker: *worker, parent: None, blocks });
                done.push(Op::Clear { worker: *worker });
            }
            continue;
        }
        // Poisoned or not: what it holds is not known here. It may stay so for
        // a while.
        if rng.random_ratio(1, 2) {
            index.remove_worker(*worker);
            poisoned.remove(worker);
        }
        done.push(Op::Leave { worker: *worker });
    }
    poisoned.into_iter().for_each(|worker| index.remove_worker(worker));
    done
}

fn writers_and_readers(naming: Naming, seed: u64) {
    let mode = Mode { workers: 4, alphabet: 2, prompt: 32, naming, moves: 30, ..Mode::BASE };
    let setups = [
        Index::builder().drain_threads(0).run_blocks(4).hub_threshold(1),
        Index::builder().drain_threads(0),
        Index::builder().drain_threads(1).drain_threshold(1).run_blocks(8).hub_threshold(2),
        Index::builder().run_blocks(4).max_blocks(LIMIT).max_worker_blocks(CHAIN),
        Index::builder().drain_threads(0).hub_threshold(1).max_blocks(LIMIT),
    ];
    for (limited, setup) in [false, false, false, true, true].into_iter().zip(setups) {
        let index = setup.build();
        index.store(KEPT, None, &chain()).unwrap();
        let streams = streams(mode, seed, 500, 3);
        let (writing, done) = (AtomicUsize::new(streams.len()), AtomicBool::new(false));
        let logs: Vec<Vec<Op>> = std::thread::scope(|scope| {
            let mut writers = Vec::new();
            for (at, ops) in (0..).zip(&streams) {
                let (index, writing, done) = (&index, &writing, &done);
                writers.push(scope.spawn(move || {
                    let log = write(index, ops, seed * 10 + at);
                    if writing.fetch_sub(1, Ordering::AcqRel) == 1 {
                        done.store(true, Ordering::Release);
                    }
                    log
                }));
            }
            for reader in 0..2 {
                let (index, done) = (&index, &done);
                scope.spawn(move || {
                    let contents: Vec<u64> = (0..CHAIN + 2).map(|n| n % 2).collect();
                    let mut matches = Matches::new();
                    let mut asked = reader;
                    while !done.load(Ordering::Acquire) {
                        asked += 1;
                        if asked % 3 == 0 {
                            fault::arm(asked % 12);
                        }
                        let contents = LocalHash::from_slice(&contents);
                        if survive(|| index.matches_into(contents, &mut matches)).is_ok() {
                            assert_eq!(u64::from(matches.depth_of(KEPT)), CHAIN, "seen short");
                        }
                        fault::disarm();
                    }
                });
            }
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });

        let mut reference = ReferenceIndex::new();
        reference.store(KEPT, None, &chain()).unwrap();
        for op in logs.iter().flatten() {
            match op {
                Op::Store { worker, parent, blocks } => {
                    _ = reference.store(*worker, *parent, blocks);
                }
                Op::Remove { worker, names } => reference.remove(*worker, names),
                Op::Clear { worker } => reference.clear(*worker),
                Op::Leave { worker } => reference.remove_worker(*worker),
                _ => unreachable!(),
            }
        }
        index.flush();
        assert_eq!(index.poisoned(), []);
        index.check();
        assert_eq!(index.workers(), reference.workers());
        for op in streams.iter().flatten() {
            if let Op::Ask { query } = op {
                let (got, expected) = (index.matches(query), reference.matches(query));
                assert_eq!(crate::common::answer(&got), crate::common::answer(&expected));
            }
        }
        for known in index.workers() {
            assert_eq!(index.held(known), reference.held(known), "{known}");
        }
        assert_eq!(index.stats().tree_blocks, reference.stats().tree_blocks);
        assert_eq!(index.stats().limited_blocks > 0, limited, "limits are met");
        for known in index.workers() {
            index.remove_worker(known);
        }
        crate::common::assert_empty(&index);
        // Whatever panicked, all room is there again.
        let all = blocks((0..LIMIT).map(|n| (n, n)));
        all.chunks(CHAIN as usize).zip(0..).for_each(|(part, who)| {
            index.store(worker(who), None, part).unwrap();
        });
    }
}

#[test]
fn panics_of_writers_and_readers_beside_each_other_leave_the_rest_exact() {
    in_time(|| {
        writers_and_readers(Naming::Shared, 1);
        writers_and_readers(Naming::Clashing, 2);
    });
}

/// The steps of a drain and of what follows from it.
const DRAIN: [Fault; 17] = [
    Fault::Popped,
    Fault::NameFound,
    Fault::NamesFound,
    Fault::NamesGivenUp,
    Fault::NodeLocked,
    Fault::EntryRemoved,
    Fault::LetGo,
    Fault::Trimmed,
    Fault::ViewMade,
    Fault::Published,
    Fault::Emptied,
    Fault::Unlinking,
    Fault::Unlinked,
    Fault::Applied,
    Fault::EventEnds,
    Fault::HandingOver,
    Fault::Reclaiming,
];

/// Waits until it holds.
fn soon(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: never");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn a_drain_thread_that_panics_goes_on_for_all_others() {
    in_time(|| {
        for point in DRAIN {
            let index = Index::builder().drain_threads(1).drain_threshold(4).run_blocks(4).build();
            let (torn, other) = (worker(1), worker(2));
            let whole: Vec<u64> = (0..16).collect();
            for who in [torn, other] {
                index
                    .store(who, None, &blocks(whole.iter().map(|n| (who.id * 100 + n, *n))))
                    .unwrap();
            }
            let evicted = |who: WorkerId| names((4..16).rev().map(|n| who.id * 100 + n));
            index.store(torn, below(115), &blocks([(200, 99)])).unwrap();
            // Once for the removal of a node that is detached.
            fault::arm_pool(point, 1);
            index.remove(torn, &names([200]));
            soon(&format!("{point:?}"), || fault::pool_left() == 0);
            index.remove(torn, &evicted(torn));
            index.remove(other, &evicted(other));
            let seen = |who| index.matches(&query(0..16)).depth_of(who);
            soon("the other's removal", || seen(other) == 4);
            soon("the panicked one's", || {
                seen(torn) == if index.poisoned() == [torn] { 0 } else { 4 }
            });
            soon("nothing pending", || index.stats().pending_removals == 0);
            index.check();
            index.remove_worker(torn);
            assert_eq!(index.poisoned(), []);
            index.check();
            assert_eq!(index.stats().tree_blocks, 4, "{point:?}");
            assert_eq!(depth(&index, other, &whole), 4);
        }
    });
}

/// Nothing of the others waits for the next flush.
#[test]
fn a_flush_that_panics_in_one_lane_has_drained_the_others() {
    in_time(|| {
        for point in 0..40 {
            let queueing = Index::builder().removal_delay(Duration::MAX);
            let index = queueing.drain_threshold(100).build();
            for who in 0..4 {
                index.store(worker(who), None, &blocks((0..8).map(|n| (n, n)))).unwrap();
                index.remove(worker(who), &names([7, 6]));
            }
            fault::arm(point);
            let flushed = survive(|| index.flush());
            fault::disarm();
            // One that panicked before it began is listed again.
            let pending = index.stats().pending_removals;
            assert!(pending == 0 || flushed.is_err() && pending == 2, "{pending} at {point}");
            let poisoned = index.poisoned();
            let seen = (0..4).filter(|who| index.matches(&query(0..8)).depth_of(worker(*who)) == 6);
            assert!(seen.count() >= 3);
            index.flush();
            index.check();
            assert!(index.stats().pending_removals == 0 && index.poisoned() == poisoned);
        }
    });
}

/// Its pin ends with it.
#[test]
fn a_reader_that_dies_in_the_middle_of_a_walk_keeps_nothing_back() {
    in_time(|| {
        let index = Index::builder().drain_threads(0).run_blocks(4).build();
        index.store(KEPT, None, &chain()).unwrap();
        for at in 0..8 {
            let killed = std::thread::scope(|scope| {
                let reader = || {
                    fault::arm(at);
                    index.matches(&query((0..CHAIN).map(|n| n % 2)))
                };
                scope.spawn(reader).join().map_err(kvradix_fault_tests::injected)
            });
            assert_eq!(killed.unwrap_err(), Fault::Walking);
            for n in 0..200 {
                index.store(worker(1), None, &blocks([(n, 1_000 + n)])).unwrap();
                index.remove(worker(1), &names([n]));
            }
            soon("what was retired is freed", || {
                index.flush();
                index.stats().retired_bytes == 0
            });
        }
    });
}

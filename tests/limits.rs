//! Limits: what is above them is refused whole, by name, and nothing else is.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::compare::{Start, hold_from};
use common::stream::{Eviction, Mode, Naming, Op, stream};
use common::{assert_empty, below, blocks, depth, names, worker};
use kvradix::reference::ReferenceIndex;
use kvradix::{Builder, Index, Pool, SequenceHash, StoreError, WorkerId};

const A: WorkerId = worker(1);
const B: WorkerId = worker(2);

/// Removals are visible when their calls return.
fn prompt() -> Builder {
    Index::builder().drain_threads(0)
}

fn index_full(worker: WorkerId, limit: u64, tree_blocks: u64) -> Result<(), StoreError> {
    Err(StoreError::IndexFull { worker, limit, tree_blocks })
}

fn worker_full(worker: WorkerId, limit: u64, held_blocks: u64) -> Result<(), StoreError> {
    Err(StoreError::WorkerFull { worker, limit, held_blocks })
}

fn chain(from: u64, to: u64) -> Vec<kvradix::Block> {
    blocks((from..to).map(|n| (n, n)))
}

/// Set-ups of both sides: limits that random streams keep meeting.
const LIMITED: [(&str, Start<Index>); 4] = [
    (
        "tree",
        Start {
            subject: || prompt().max_blocks(100).build(),
            reference: || ReferenceIndex::new().max_blocks(100),
            empty: || prompt().build(),
        },
    ),
    (
        "tree, small nodes",
        Start {
            subject: || prompt().max_blocks(40).run_blocks(4).hub_threshold(2).build(),
            reference: || ReferenceIndex::new().max_blocks(40),
            empty: || prompt().build(),
        },
    ),
    (
        "worker",
        Start {
            subject: || prompt().max_worker_blocks(20).build(),
            reference: || ReferenceIndex::new().max_worker_blocks(20),
            empty: || prompt().build(),
        },
    ),
    (
        "both, small nodes",
        Start {
            subject: || {
                let small = prompt().run_blocks(4).hub_threshold(2);
                small.max_blocks(80).max_worker_blocks(30).build()
            },
            reference: || ReferenceIndex::new().max_blocks(80).max_worker_blocks(30),
            empty: || prompt().build(),
        },
    ),
];

fn limited_blocks(ops: &[Op], mut reference: ReferenceIndex) -> u64 {
    for op in ops {
        match op {
            Op::Store { worker, parent, blocks } => {
                _ = reference.store(*worker, *parent, blocks);
            }
            Op::Remove { worker, names } => reference.remove(*worker, names),
            Op::Clear { worker } => reference.clear(*worker),
            Op::Leave { worker } => reference.remove_worker(*worker),
            Op::LeaveRanks { id } => reference.remove_ranks(*id),
            Op::Apply { events } => _ = reference.apply_all(events),
            _ => {}
        }
    }
    reference.stats().limited_blocks
}

/// Errors and counts included.
#[test]
fn random_streams_are_refused_exactly_what_the_limits_say() {
    let modes = [
        Mode::BASE,
        Mode { eviction: Eviction::TailFirst, batch: 4, ..Mode::BASE },
        Mode { naming: Naming::Clashing, moves: 6, ..Mode::BASE },
        Mode { naming: Naming::TwoPerWorker, moves: 6, rare: 20, ..Mode::BASE },
    ];
    for (name, start) in &LIMITED {
        let mut limited = 0;
        for (seed, mode) in (700..).zip(modes) {
            let ops = stream(mode, seed, 600);
            limited += limited_blocks(&ops, (start.reference)());
            hold_from(start, &format!("{name}, seed {seed}"), &ops, mode.names_alike(), true);
        }
        assert!(limited > 1_000, "{name}: {limited} blocks were refused for a limit");
    }
}

#[test]
fn a_store_above_a_limit_is_refused_whole_and_counted() {
    let index = prompt().max_blocks(10).max_worker_blocks(6).build();
    index.store(A, None, &chain(0, 6)).unwrap();
    assert_eq!(index.store(A, below(5), &chain(6, 7)), worker_full(A, 6, 6));
    assert_eq!(index.store(B, None, &chain(20, 27)), worker_full(B, 6, 0));
    index.store(B, None, &chain(20, 22)).unwrap();
    assert_eq!(index.store(B, below(21), &chain(22, 25)), index_full(B, 10, 8));
    assert_eq!(index.store(B, None, &chain(0, 4)), index_full(B, 10, 8), "as if none were shared");
    index.store(B, below(21), &chain(22, 24)).unwrap();
    let stats = index.stats();
    assert_eq!((stats.refused_blocks, stats.limited_blocks), (15, 15));
    assert_eq!((stats.tree_blocks, stats.held_blocks), (10, 10));
    // Nothing was forgotten to make room, and what goes makes room.
    assert_eq!(depth(&index, A, &[0, 1, 2, 3, 4, 5]), 6);
    index.remove(A, &names([5]));
    index.store(B, below(23), &chain(24, 25)).unwrap();
    index.check();
}

/// Names that are stored again take no room of the worker's.
#[test]
fn a_worker_at_its_limit_may_store_again_what_it_has() {
    let index = prompt().max_worker_blocks(4).build();
    index.store(A, None, &chain(0, 4)).unwrap();
    index.store(A, None, &chain(0, 4)).unwrap();
    index.store(A, None, &blocks([(3, 77)])).unwrap();
    assert_eq!(index.store(A, None, &blocks([(3, 78), (9, 9)])), worker_full(A, 4, 4));
    assert_eq!((index.held(A), depth(&index, A, &[77])), (4, 1));
}

#[test]
fn a_workers_queued_removals_make_room_for_its_store() {
    let queueing = || Index::builder().drain_threshold(1_000).removal_delay(Duration::MAX);
    for index in [queueing().max_blocks(4).build(), queueing().max_worker_blocks(4).build()] {
        index.store(A, None, &chain(0, 4)).unwrap();
        index.remove(A, &names([3, 2]));
        assert_eq!(index.stats().pending_removals, 2);
        index.store(A, None, &chain(10, 12)).unwrap();
        assert!(index.store(A, None, &chain(20, 21)).is_err());
        assert_eq!(index.held(A), 4);
    }
}

/// Also in what a batch is told that is too large by itself.
#[test]
fn what_a_worker_has_removed_is_not_told_as_held() {
    let queueing = Index::builder().drain_threshold(1_000).removal_delay(Duration::MAX);
    for index in [queueing.clone().max_worker_blocks(4).build(), queueing.max_blocks(4).build()] {
        index.store(A, None, &chain(0, 4)).unwrap();
        index.remove(A, &names([3, 2]));
        let refused = index.store(A, None, &chain(10, 15));
        assert!(refused == worker_full(A, 4, 2) || refused == index_full(A, 4, 2), "{refused:?}");
        assert_eq!(index.stats().pending_removals, 0);
    }
}

#[test]
fn a_worker_whose_first_store_is_refused_stays_unknown() {
    let index = prompt().max_blocks(2).build();
    assert_eq!(index.store(A, None, &chain(0, 3)), index_full(A, 2, 0));
    index.store(B, None, &chain(0, 2)).unwrap();
    assert_eq!(index.store(A, None, &chain(0, 1)), index_full(A, 2, 2));
    assert_eq!(index.workers(), [B]);
    let parent = SequenceHash(0);
    let late = index.store(A, Some(parent), &chain(5, 6));
    assert_eq!(late, Err(StoreError::ParentNotFound { worker: A, parent }));
}

#[test]
fn a_limit_of_nothing_lets_nothing_in() {
    for index in [prompt().max_blocks(0).build(), prompt().max_worker_blocks(0).build()] {
        assert!(index.store(A, None, &chain(0, 1)).is_err());
        index.store(A, None, &[]).unwrap();
        assert_empty(&index);
    }
}

/// However many store at once, and with what is shared between them.
#[test]
fn a_limit_is_never_exceeded_by_writers_at_once() {
    const LIMIT: u64 = 100;
    for threads in [0, 1] {
        let index = Index::builder().drain_threads(threads).max_blocks(LIMIT).run_blocks(8).build();
        let done = AtomicBool::new(false);
        let stored: Vec<u64> = std::thread::scope(|scope| {
            let write = |who: u64| {
                let index = &index;
                move || {
                    let mut stored = 0;
                    for round in 0..3_000_u64 {
                        let (own, from) = (who * 1_000_000 + round * 16, round % 7);
                        let batch = blocks((0..16).map(|n| (own + n, from * 100 + n % (3 + who))));
                        if index.store(worker(who), None, &batch).is_ok() {
                            stored += 1;
                        } else {
                            index.clear(worker(who));
                            std::thread::yield_now();
                        }
                        if round % 3 > 0 {
                            index.remove(worker(who), &names((own - 16)..own));
                        }
                    }
                    index.clear(worker(who));
                    stored
                }
            };
            let writers: Vec<_> = (1..4).map(|who| scope.spawn(write(who))).collect();
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    assert!(index.stats().tree_blocks <= LIMIT);
                }
            });
            let stored = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            done.store(true, Ordering::Release);
            stored
        });
        println!("stores that found room: {stored:?}");
        let all: u64 = stored.iter().sum();
        assert!((100..8_900).contains(&all), "met seldom or always: {stored:?}");
        index.flush();
        index.check();
        (1..4).for_each(|who| index.remove_worker(worker(who)));
        assert_empty(&index);
        index.store(A, None, &chain(0, LIMIT)).unwrap();
        assert_eq!(index.stats().tree_blocks, LIMIT);
    }
}

/// Fails if room that a store did not need, or that a removal has made, comes
/// back late or not at all: there is room for what everybody stores at once,
/// and no more.
#[test]
fn a_store_for_which_there_is_room_is_never_refused() {
    const BATCH: u64 = 8;
    const THREADS: u64 = 4;
    // Who shares nothing has what he reserved, or has stored it, not both; the
    // blocks that several have may be reserved by each of them beside that.
    for (shared, limit) in [(false, BATCH * THREADS), (true, BATCH * (2 * THREADS - 1))] {
        for threads in [0, 2] {
            let builder = Index::builder().drain_threads(threads).drain_threshold(4);
            let index = builder.max_blocks(limit).run_blocks(4).hub_threshold(1).build();
            let come_and_go = &|who: u64| {
                for round in 0..3_000 {
                    let own = (who * 3_000 + round) * BATCH;
                    let first = match round % 3 {
                        0 if shared => 0,
                        1 if shared => who / 2 * 100,
                        _ => 1_000 + own,
                    };
                    let batch = blocks((0..BATCH).map(|n| (own + n, first + n)));
                    index.store(worker(who), None, &batch).unwrap();
                    match round % 7 {
                        0 => index.clear(worker(who)),
                        1 => index.remove_worker(worker(who)),
                        _ => index.remove(worker(who), &names((own..own + BATCH).rev())),
                    }
                }
            };
            std::thread::scope(|scope| {
                (0..THREADS).for_each(|who| _ = scope.spawn(move || come_and_go(who)));
            });
            index.flush();
            index.check();
            assert_eq!(index.stats().tree_blocks, 0);
        }
    }
}

/// Settings beyond all reason are brought down to the documented bounds when
/// they are given, before anything is made of them.
#[test]
fn absurd_settings_are_clamped() {
    assert_eq!(format!("{:?}", Pool::new(usize::MAX)), "Pool { threads: 1024 }");
    let absurd = Index::builder()
        .drain_threshold(usize::MAX)
        .max_pending(usize::MAX)
        .removal_delay(Duration::MAX)
        .run_blocks(u32::MAX)
        .hub_threshold(usize::MAX)
        .max_blocks(u64::MAX)
        .max_worker_blocks(u64::MAX);
    let tiny = prompt().drain_threshold(0).max_pending(0).run_blocks(0).hub_threshold(0);
    for builder in [absurd, tiny] {
        let index = builder.build();
        index.store(A, None, &chain(0, 5_000)).unwrap();
        for n in 0..2_000 {
            index.store(B, below(n), &[]).unwrap();
            index.store(A, below(9), &blocks([(10_000 + n, 10_000 + n)])).unwrap();
        }
        assert_eq!(depth(&index, A, &(0..5_000).collect::<Vec<_>>()), 5_000);
        index.remove(A, &names((0..5_000).chain(10_000..12_000)));
        index.remove_worker(A);
        assert_empty(&index);
    }
}

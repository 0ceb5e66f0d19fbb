//! The removal queues and the threads that drain them.

mod common;

use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use common::{below, blocks, depth, names, worker};
use kvradix::{Index, LocalHash, Pool, WorkerId};

const A: WorkerId = worker(1);
/// Longer than any test takes: what happens earlier is not the timer's doing.
const NEVER: Duration = Duration::from_secs(3600);
/// What is in time on a busy machine, and is not in time when it hangs.
const SOON: Duration = Duration::from_secs(20);

/// Threads are counted in the process: one test at a time, and none before the
/// threads of the last one have ended, which an index's end does not wait for.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(|panicked| panicked.into_inner());
    soon("the end of the threads of the test before", || threads() == 0);
    alone
}

/// The threads of this process that an index or a pool has started.
fn threads() -> usize {
    named("kvradix")
}

/// Panics if the test has threads. One of the test before may come late: a
/// thread has its name only once it has run a little, and is not counted until
/// then.
fn no_threads(why: &str) {
    soon(why, || threads() == 0);
}

fn named(prefix: &str) -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks.filter_map(name).filter(|name| name.starts_with(prefix)).count()
}

/// Waits until `holds`; panics when it does not come soon.
fn soon(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < SOON, "{what}: not after {SOON:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Runs it elsewhere; panics when it does not come back soon.
fn in_time<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || done.send(run()));
    wait.recv_timeout(SOON).unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn chain(length: u64) -> Vec<kvradix::Block> {
    blocks((0..length).map(|i| (i, i)))
}

/// The depth as it is visible now, without a flush.
fn seen(index: &Index, who: WorkerId, length: u64) -> u32 {
    let contents: Vec<u64> = (0..length).collect();
    index.matches(LocalHash::from_slice(&contents)).depth_of(who)
}

/// A removal that nothing but its test makes visible.
fn queueing() -> kvradix::Builder {
    Index::builder()
        .drain_threads(1)
        .drain_threshold(1_000_000)
        .max_pending(1_000_000)
        .removal_delay(NEVER)
}

#[test]
fn a_removal_is_visible_when_flush_returns() {
    let _alone = alone();
    let index = queueing().build();
    for round in 0..200 {
        for who in 0..4 {
            index.store(worker(who), None, &chain(16)).unwrap();
            index.remove(worker(who), &names([round % 16]));
        }
        index.flush();
        for who in 0..4 {
            assert_eq!(u64::from(seen(&index, worker(who), 16)), round % 16);
        }
        assert_eq!(index.stats().pending_removals, 0);
    }
}

/// Also what other threads handed in before, while more comes in.
#[test]
fn flush_is_a_barrier_beside_other_threads() {
    let _alone = alone();
    for index in [queueing().build(), Index::new()] {
        std::thread::scope(|scope| {
            for who in 0..3 {
                let index = &index;
                scope.spawn(move || {
                    for round in 0..300 {
                        index.store(worker(who), None, &chain(16)).unwrap();
                        index.remove(worker(who), &names([round % 16]));
                        if round % 2 == 0 {
                            index.flush()
                        } else {
                            index.flush_worker(worker(who))
                        }
                        assert_eq!(u64::from(seen(index, worker(who), 16)), round % 16);
                    }
                });
            }
        });
    }
}

#[test]
fn flush_worker_makes_that_workers_removals_visible() {
    let _alone = alone();
    let index = queueing().build();
    index.store(A, None, &chain(4)).unwrap();
    index.store(worker(2), None, &chain(4)).unwrap();
    index.remove(A, &names([2]));
    index.remove(worker(2), &names([1]));
    index.flush_worker(A);
    assert_eq!(seen(&index, A, 4), 2);
    assert_eq!(depth(&index, worker(2), &[0, 1, 2, 3]), 1);
}

#[test]
fn a_later_event_of_the_worker_finds_its_removals_applied() {
    let _alone = alone();
    let index = queueing().build();
    index.store(A, None, &chain(4)).unwrap();
    index.remove(A, &names([3]));
    assert!(index.store(A, below(3), &blocks([(9, 9)])).is_err());
    index.remove(A, &names([2]));
    index.store(A, None, &blocks([(50, 50)])).unwrap();
    assert_eq!(seen(&index, A, 4), 2);
    index.remove(A, &names([1]));
    assert!(!index.has(A, names([1])[0]));
    index.remove(A, &names([0]));
    assert_eq!(index.held(A), 1);
    index.remove(A, &names([50, 51]));
    index.clear(A);
    index.flush();
    assert_eq!(index.stats().unknown_removals, 1);
}

#[test]
fn a_removal_is_visible_after_the_delay_without_a_flush() {
    let _alone = alone();
    let index = Index::builder().drain_threshold(1_000_000).max_pending(1_000_000).build();
    for round in 0..20 {
        index.store(A, None, &chain(16)).unwrap();
        index.remove(A, &names([round % 16]));
        soon("a removal", || u64::from(seen(&index, A, 16)) == round % 16);
        // Long enough for the timer to fall asleep.
        std::thread::sleep(Duration::from_millis(round % 4 * 3));
    }
    soon("nothing pending", || index.stats().pending_removals == 0);
}

/// The longest delay there is: whoever sets it wants no timer.
#[test]
fn a_delay_beyond_all_clocks_is_a_delay() {
    let _alone = alone();
    let index = Index::builder().removal_delay(Duration::MAX).build();
    index.store(A, None, &chain(16)).unwrap();
    index.remove(A, &names([15]));
    assert_eq!(index.stats().pending_removals, 1);
    index.flush();
    assert_eq!(seen(&index, A, 16), 15);
}

#[test]
fn a_removal_is_visible_after_the_delay_whatever_the_traffic() {
    let _alone = alone();
    let index = Index::builder().drain_threshold(1_000_000).max_pending(1_000_000).build();
    index.store(A, None, &chain(8)).unwrap();
    index.store(worker(2), None, &blocks((0..30_000).map(|i| (i, i)))).unwrap();
    index.remove(A, &names([5]));
    let start = Instant::now();
    for name in 0..30_000 {
        index.remove(worker(2), &names([29_999 - name]));
        if seen(&index, A, 8) == 5 {
            return;
        }
        assert!(start.elapsed() < SOON);
    }
    soon("a removal", || seen(&index, A, 8) == 5);
}

#[test]
fn a_full_batch_is_drained_before_the_delay() {
    let _alone = alone();
    let index = Index::builder().drain_threshold(8).removal_delay(NEVER).build();
    index.store(A, None, &chain(64)).unwrap();
    index.remove(A, &names((32..64).rev()));
    soon("a batch over the threshold", || seen(&index, A, 64) == 32);
}

#[test]
fn without_threads_a_removal_applies_before_it_returns() {
    let _alone = alone();
    let index = Index::builder().drain_threads(0).removal_delay(NEVER).build();
    index.store(A, None, &chain(64)).unwrap();
    for name in (1..64).rev() {
        index.remove(A, &names([name]));
        assert_eq!(u64::from(seen(&index, A, 64)), name);
        assert_eq!((index.stats().pending_removals, index.stats().tree_blocks), (0, name));
    }
    no_threads("a removal applies in its call");
}

/// Bounds below and above a part, which is of 512 names. Fails if a caller above
/// the bound leaves more waiting than that, or applies the whole of a long
/// queue: one call would take as long as all before it saved.
#[test]
fn a_caller_above_the_bound_applies_a_part_of_the_queue() {
    let _alone = alone();
    for (bound, left) in [(10, 0), (4_000, 3_001)] {
        let index = queueing().max_pending(bound as usize).build();
        index.store(A, None, &chain(4_096)).unwrap();
        for (before, name) in (0..4_096).rev().enumerate() {
            index.remove(A, &names([name]));
            let waiting = index.stats().pending_removals;
            assert!(waiting <= bound, "{waiting} names wait");
            let filled = before as u64 >= bound;
            assert!(!filled || waiting >= left, "{waiting} names wait after {name}");
        }
        index.flush();
        let stats = index.stats();
        assert_eq!((stats.pending_removals, stats.tree_blocks, stats.workers), (0, 0, 1));
    }
    // A call that is longer than the bound.
    let index = queueing().max_pending(10).build();
    index.store(A, None, &chain(256)).unwrap();
    index.remove(A, &names(0..256));
    assert!(index.stats().pending_removals <= 10, "{:?}", index.stats());
}

/// A store that waited in our pool for its turn, called from all the threads
/// of the user's, would wait for ever.
#[test]
fn calls_from_a_users_pool_never_wait_on_ours() {
    let _alone = alone();
    in_time("stores from a pool of one thread and of two", || {
        for user_threads in [1, 2] {
            let users = rayon::ThreadPoolBuilder::new().num_threads(user_threads).build().unwrap();
            for index in [
                Index::new(),
                Index::builder().drain_threads(1).drain_threshold(1).max_pending(2).build(),
            ] {
                users.scope(|scope| {
                    for task in 0..16_u64 {
                        let index = &index;
                        scope.spawn(move |_| {
                            for round in 0..50 {
                                index.store(worker(task % 3), None, &chain(16)).unwrap();
                                index.remove(worker(task % 3), &names([round % 16, 3, 5]));
                                seen(index, worker(task % 3), 16);
                                if round % 10 == 0 {
                                    index.flush();
                                    index.export(worker(task % 3));
                                }
                            }
                        });
                    }
                });
                index.flush();
                index.check();
            }
        }
    });
}

#[test]
fn threads_start_when_first_needed_and_end_with_the_index() {
    let _alone = alone();
    let index = Index::builder().drain_threads(2).drain_threshold(4).build();
    index.store(A, None, &chain(64)).unwrap();
    seen(&index, A, 64);
    index.flush();
    no_threads("nothing was removed yet");
    index.remove(A, &names((1..64).rev()));
    soon("the removal", || seen(&index, A, 64) == 1);
    drop(index);
    soon("the end of its threads", || threads() == 0);
}

#[test]
fn dropping_an_index_with_removals_pending_ends_its_threads() {
    let _alone = alone();
    for _ in 0..20 {
        for builder in [queueing(), Index::builder().drain_threads(2).drain_threshold(2)] {
            let index = builder.build();
            for who in 0..8 {
                index.store(worker(who), None, &chain(64)).unwrap();
                (1..64).rev().for_each(|name| index.remove(worker(who), &names([name])));
            }
            in_time("the drop", move || drop(index));
        }
    }
    soon("the end of all threads", || threads() == 0);
}

#[test]
fn an_index_can_be_dropped_in_a_task_of_another_pool() {
    let _alone = alone();
    in_time("drops in a pool of one thread", || {
        let users = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        for _ in 0..10 {
            let index = Index::builder().drain_threads(2).drain_threshold(2).build();
            index.store(A, None, &chain(64)).unwrap();
            index.remove(A, &names(8..64));
            users.install(move || {
                index.remove(A, &names(0..8));
                drop(index);
            });
        }
    });
    soon("the end of its threads", || threads() == 0);
}

/// The last user of a shared index may be any task.
#[test]
fn the_last_of_several_owners_ends_the_threads() {
    let _alone = alone();
    let index = Arc::new(Index::builder().drain_threads(2).drain_threshold(1).build());
    let users = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    for who in 0..8 {
        let index = Arc::clone(&index);
        users.spawn(move || {
            index.store(worker(who), None, &chain(16)).unwrap();
            index.remove(worker(who), &names(0..16));
        });
    }
    drop(index);
    drop(users);
    soon("the end of its threads", || threads() == 0);
}

#[test]
fn several_indexes_share_a_pool() {
    let _alone = alone();
    let pool = Pool::new(2);
    no_threads("threads start when first needed");
    let mut indexes: Vec<_> = (0..6).map(|_| Index::builder().pool(&pool).build()).collect();
    let use_all = |indexes: &[Index]| {
        for index in indexes {
            index.store(A, None, &chain(32)).unwrap();
            index.remove(A, &names((16..32).rev()));
        }
        for index in indexes {
            soon("a removal", || seen(index, A, 32) == 16);
        }
    };
    use_all(&indexes);
    // A thread takes its name after it has started.
    soon("both threads", || named("kvradix-drain") == 2);
    // One goes, the others go on; without the handle as well.
    indexes.pop();
    use_all(&indexes);
    drop(pool);
    indexes.pop();
    use_all(&indexes);
    drop(indexes);
    soon("the end of the pool", || threads() == 0);
}

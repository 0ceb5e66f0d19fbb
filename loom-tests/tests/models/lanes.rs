//! Lanes: queued removals, drains, flushes, closing.

use kvradix::Index;
use kvradix::model::{Arc, ring, run_task};
use kvradix_loom_tests::{Model, saw, spawn};

use crate::world::{A, K, depth, on, remove, settle, settle_empty, shared, small, store};

pub const MODELS: &[Model] = &[
    Model::new("queued_removal_against_later_store", store_wins).iterations(7, 100).bound(3),
    Model::new("store_against_later_queued_removal", removal_wins).iterations(6, 100).bound(3),
    Model::new("queued_removal_against_store_and_flush", store_wins_three)
        .iterations(100, 1_000)
        .bound(2),
    Model::new("flush_against_drain_by_the_pool", flush).iterations(20, 300).bound(3),
    Model::new("two_flushes_and_a_drain", two_flushes).iterations(400, 6_000).bound(2),
    Model::new("removals_against_their_own_task", scheduled).iterations(40, 700).bound(3),
    Model::new("removals_against_the_alarm", alarm).iterations(9, 100).bound(3),
    Model::new("removals_against_the_alarm_and_its_task", alarm_task).iterations(20, 300).bound(2),
    Model::new("removals_and_a_flush_against_the_alarm", alarm_flush)
        .iterations(100, 1_000)
        .bound(3),
    Model::new("removal_against_a_drain_that_ends_with_what_it_found", bounded)
        .iterations(60, 1_000)
        .bound(3),
    Model::new("removal_above_the_bound_against_the_alarm", part)
        .iterations(400, 9_000)
        .bound(3)
        .sees(&["0", "1"]),
    Model::new("flush_against_removal_of_another_thread", flush_beside)
        .iterations(180, 3_000)
        .bound(3)
        .sees(&["1", "2"]),
    Model::new("leaving_worker_against_its_store", closed_store)
        .iterations(40, 700)
        .bound(3)
        .sees(&["known", "unknown"]),
    Model::new("leaving_worker_against_its_child_store", closed_child_store)
        .iterations(50, 900)
        .bound(3)
        .sees(&["refused", "stored"]),
    Model::new("leaving_worker_against_its_removal", closed_remove)
        .iterations(60, 1_000)
        .bound(3)
        .sees(&["1", "2"]),
    Model::new("leaving_worker_against_store_and_flush", closed_three)
        .iterations(100, 2_000)
        .bound(2),
    Model::new("leaving_worker_against_the_task_of_its_removal", closed_task)
        .iterations(200, 4_000)
        .bound(3),
    Model::new("stats_against_leaving_worker", stats_beside).iterations(4, 100).bound(3),
    Model::new("two_first_stores_of_one_worker", first_stores).iterations(40, 700).bound(3),
    Model::new("drop_of_the_index_against_queued_drain", dropped).iterations(4, 100).bound(3),
];

/// One pool thread, run by the model; every removal is worth a task.
fn pooled() -> Arc<Index> {
    shared(small().drain_threads(1).drain_threshold(1))
}

/// One pool thread; removals wait for the alarm.
fn delayed() -> Arc<Index> {
    shared(small().drain_threads(1).drain_threshold(100))
}

/// Runs what tasks are left.
fn rest() {
    while run_task() {}
}

/// Lets the alarm go off for as long as somebody asked for it.
fn ring_all() {
    while ring() | run_task() {}
}

fn store_wins() {
    let index = pooled();
    store(&index, A, &[1]);
    remove(&index, A, &[1]);
    let pool = spawn(run_task);
    store(&index, A, &[1]);
    assert_eq!(depth(&index, &[1], A), 1, "a removal overtook a store");
    pool.join();
    rest();
    assert_eq!(depth(&index, &[1], A), 1, "a removal overtook a store");
    settle(&index);
}

fn removal_wins() {
    let index = pooled();
    let pool = spawn(run_task);
    store(&index, A, &[1]);
    remove(&index, A, &[1]);
    pool.join();
    rest();
    assert_eq!(depth(&index, &[1], A), 0, "a removal was lost");
    settle_empty(&index);
}

fn store_wins_three() {
    let index = pooled();
    store(&index, A, &[1]);
    remove(&index, A, &[1]);
    let pool = spawn(run_task);
    let flusher = on(&index, |index| index.flush_worker(A));
    store(&index, A, &[1]);
    pool.join();
    flusher.join();
    rest();
    assert_eq!(depth(&index, &[1], A), 1, "a removal overtook a store");
    settle(&index);
}

/// After a flush nothing handed in before is invisible.
fn flush() {
    let index = pooled();
    store(&index, K, &[1]);
    store(&index, A, &[1, 2]);
    let pool = spawn(run_task);
    remove(&index, A, &[2]);
    index.flush_worker(A);
    assert_eq!(depth(&index, &[1, 2], A), 1, "invisible after a flush");
    pool.join();
    rest();
    settle(&index);
}

fn two_flushes() {
    let index = pooled();
    store(&index, A, &[1, 2]);
    let pool = spawn(run_task);
    let flusher = on(&index, |index| index.flush_worker(A));
    remove(&index, A, &[2]);
    index.flush();
    assert_eq!(depth(&index, &[1, 2], A), 1, "invisible after a flush");
    pool.join();
    flusher.join();
    rest();
    settle(&index);
}

/// No task that is on its way misses names for which none was sent: they are in
/// another chunk than the first two.
fn scheduled() {
    let index = pooled();
    store(&index, A, &[1, 2, 3]);
    let pool = spawn(run_task);
    remove(&index, A, &[3, 2]);
    remove(&index, A, &[1]);
    pool.join();
    rest();
    assert_eq!(index.stats().pending_removals, 0, "a wake-up was lost");
    settle_empty(&index);
}

/// No alarm that is to go off misses a lane for which it was not set anew.
fn alarm() {
    let index = delayed();
    store(&index, A, &[1]);
    store(&index, K, &[2]);
    remove(&index, A, &[1]);
    let ringing = spawn(ring);
    remove(&index, K, &[2]);
    ringing.join();
    ring_all();
    assert_eq!(index.stats().pending_removals, 0, "a wake-up was lost");
    settle_empty(&index);
}

/// The second removal finds the lane listed and tells nobody, unless it comes
/// after the alarm's task has taken the lane off the list.
fn alarm_task() {
    let index = delayed();
    store(&index, A, &[1, 2]);
    remove(&index, A, &[2]);
    let pool = spawn(|| {
        ring();
        run_task();
    });
    remove(&index, A, &[1]);
    pool.join();
    ring_all();
    assert_eq!(index.stats().pending_removals, 0, "a wake-up was lost");
    settle_empty(&index);
}

/// The lane is on the list already when it gets dirty again.
fn alarm_flush() {
    let index = delayed();
    store(&index, A, &[1, 2]);
    remove(&index, A, &[2]);
    let pool = spawn(|| {
        ring();
        run_task();
    });
    index.flush_worker(A);
    remove(&index, A, &[1]);
    pool.join();
    ring_all();
    assert_eq!(index.stats().pending_removals, 0, "a wake-up was lost");
    settle_empty(&index);
}

/// A drain applies what it finds when it begins; what comes beside it has the
/// lane listed again. It is in another chunk.
fn bounded() {
    let index = delayed();
    store(&index, A, &[1, 2, 3]);
    remove(&index, A, &[3, 2]);
    let removing = on(&index, |index| remove(index, A, &[1]));
    ring();
    run_task();
    removing.join();
    ring_all();
    assert_eq!(index.stats().pending_removals, 0, "a wake-up was lost");
    settle_empty(&index);
}

/// Who goes above the bound applies two of three names; the third is the
/// alarm's, on whose list the lane stays. So is a later one.
fn part() {
    let index = shared(small().drain_threads(1).drain_threshold(100).max_pending(2));
    store(&index, A, &[1, 2, 3, 4]);
    remove(&index, A, &[4, 3]);
    let pool = spawn(|| {
        ring();
        run_task();
    });
    remove(&index, A, &[2]);
    saw(index.stats().pending_removals);
    pool.join();
    ring_all();
    assert_eq!(index.stats().pending_removals, 0, "a wake-up was lost");
    remove(&index, A, &[1]);
    ring_all();
    assert_eq!(index.stats().pending_removals, 0, "a wake-up was lost");
    settle_empty(&index);
}

/// What another thread hands in beside a flush may wait; what was handed in
/// before it may not.
fn flush_beside() {
    let index = delayed();
    store(&index, A, &[1, 2, 3]);
    let removing = on(&index, |index| remove(index, A, &[2]));
    remove(&index, A, &[3]);
    index.flush_worker(A);
    let left = depth(&index, &[1, 2, 3], A);
    assert!(left < 3, "invisible after a flush");
    saw(left);
    removing.join();
    ring_all();
    assert_eq!(depth(&index, &[1, 2, 3], A), 1, "a wake-up was lost");
    settle(&index);
}

/// The store counts whole or not at all, in one lane.
fn closed_store() {
    let index = shared(small());
    store(&index, A, &[1]);
    let storing = on(&index, |index| store(index, A, &[2]));
    index.remove_worker(A);
    storing.join();
    settle(&index);
    if index.workers().is_empty() {
        settle_empty(&index);
        saw("unknown");
    } else {
        assert_eq!((depth(&index, &[1], A), depth(&index, &[2], A)), (0, 1));
        assert_eq!(index.workers(), [A]);
        saw("known");
    }
}

/// A child store that comes late finds no parent.
fn closed_child_store() {
    let index = shared(small());
    store(&index, A, &[1]);
    let storing = on(&index, |index| {
        let block = crate::world::blocks(&[2]);
        index.store(A, Some(kvradix::SequenceHash(1)), &block).is_ok()
    });
    index.remove_worker(A);
    saw(if storing.join() { "stored" } else { "refused" });
    assert!(index.workers().is_empty());
    settle_empty(&index);
}

/// A name that the worker never had is counted, whoever finds the lane
/// closed.
fn closed_remove() {
    let index = delayed();
    store(&index, A, &[1]);
    let removing = on(&index, |index| remove(index, A, &[1, 7]));
    index.remove_worker(A);
    removing.join();
    ring_all();
    let unknown = index.stats().unknown_removals;
    assert!(unknown > 0, "a removal was lost");
    saw(unknown);
    settle_empty(&index);
}

/// A task that was sent for a worker who has left meanwhile finds nothing, or
/// the lane of whoever is back: no removal of his is left lying there.
fn closed_task() {
    let index = pooled();
    store(&index, A, &[1]);
    remove(&index, A, &[1]);
    let pool = spawn(run_task);
    index.remove_worker(A);
    store(&index, A, &[2, 3]);
    remove(&index, A, &[3]);
    pool.join();
    rest();
    assert_eq!(index.stats().pending_removals, 0, "a wake-up was lost");
    assert_eq!(depth(&index, &[2, 3], A), 1, "a removal was lost");
    settle(&index);
}

fn closed_three() {
    let index = shared(small());
    store(&index, A, &[1]);
    let storing = on(&index, |index| store(index, A, &[2]));
    let flusher = on(&index, |index| index.flush_worker(A));
    index.remove_worker(A);
    storing.join();
    flusher.join();
    settle(&index);
    assert!(index.workers().len() <= 1);
}

/// Its events are counted, while it is there and when it is gone. The reader
/// comes last: see README.md.
fn stats_beside() {
    let index = shared(small());
    store(&index, A, &[1]);
    let leaving = on(&index, |index| index.remove_worker(A));
    let stores = index.stats().events.stores;
    assert_eq!(stores, 1, "a leaving worker's events went uncounted, or were counted twice");
    leaving.join();
    assert_eq!((index.stats().events.stores, index.stats().events.leavings), (1, 1));
    settle_empty(&index);
}

/// One lane, one slot.
fn first_stores() {
    let index = shared(small());
    let storing = on(&index, |index| store(index, A, &[2]));
    store(&index, A, &[1]);
    storing.join();
    assert_eq!(index.workers(), [A], "one worker has one lane");
    assert_eq!((depth(&index, &[1], A), depth(&index, &[2], A)), (1, 1));
    settle(&index);
}

/// Whoever is the last frees the index.
fn dropped() {
    let index = pooled();
    store(&index, A, &[1]);
    remove(&index, A, &[1]);
    let pool = spawn(run_task);
    drop(index);
    pool.join();
}

//! What `stats` counts, and what asking costs the others.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{below, blocks, names, worker};
use kvradix::{Builder, Count, EventCounts, Index, StoreErrorKind};

/// A removal that nothing but its test makes visible.
fn queueing() -> Builder {
    Index::builder()
        .drain_threads(1)
        .drain_threshold(1_000_000)
        .max_pending(1_000_000)
        .removal_delay(Duration::from_secs(3_600))
}

fn chain(from: u64, to: u64) -> Vec<kvradix::Block> {
    blocks((from..to).map(|i| (i, i)))
}

#[test]
fn every_event_is_counted_once_by_its_kind_and_outcome() {
    common::compare::under_every_setup(|index| {
        let (known, unknown) = (worker(1), worker(2));
        index.store(known, None, &[]).unwrap();
        index.store(known, None, &chain(0, 10)).unwrap();
        index.store(known, below(7), &chain(8, 12)).unwrap(); // 8 and 9 again
        index.store(known, below(99), &chain(20, 23)).unwrap_err();
        index.store(unknown, below(0), &chain(1, 3)).unwrap_err();
        index.store(known, None, &blocks([(5, 5), (6, 6), (5, 7)])).unwrap_err();
        index.remove(known, &[]);
        index.remove(known, &names(0..10)); // more than one handful
        index.remove(known, &names([10, 77]));
        index.remove(unknown, &names([1, 2, 3]));
        index.clear(known); // 11 is left
        index.clear(unknown);
        index.store(known, None, &chain(30, 34)).unwrap();
        index.remove_worker(known);
        index.remove_worker(known);
        index.flush();

        let stats = index.stats();
        let refused = |kind| {
            let Count { events, blocks } = stats.events.refused.of(kind);
            (events, blocks)
        };
        assert_eq!(refused(StoreErrorKind::ParentNotFound), (2, 5));
        assert_eq!(refused(StoreErrorKind::RepeatedHash), (1, 3));
        assert_eq!(stats.refused_blocks, 8);
        let EventCounts { stores, stored_blocks, stored_again, .. } = stats.events;
        assert_eq!((stores, stored_blocks, stored_again), (3, 18, 2));
        let EventCounts { removals, removed_blocks, stray_removals, .. } = stats.events;
        assert_eq!((removals, removed_blocks, stray_removals), (2, 11, 1));
        assert_eq!(stats.unknown_removals, 1 + 3);
        let EventCounts { clears, cleared_blocks, stray_clears, .. } = stats.events;
        assert_eq!((clears, cleared_blocks, stray_clears), (1, 1, 1));
        let EventCounts { leavings, left_blocks, stray_leavings, .. } = stats.events;
        assert_eq!((leavings, left_blocks, stray_leavings), (1, 4, 1));
        assert_eq!(stats.drains.names, 12);
        assert_eq!((stats.workers, stats.held_blocks), (0, 0));
    });
}

#[test]
fn a_removal_that_waits_is_counted_once_it_is_applied() {
    let index = queueing().build();
    index.store(worker(1), None, &chain(0, 4)).unwrap();
    index.remove(worker(1), &names([3]));
    index.remove(worker(1), &names([1, 2]));
    let waiting = index.stats();
    assert_eq!((waiting.events.removals, waiting.pending_removals), (0, 3));
    index.flush();
    let applied = index.stats();
    assert_eq!((applied.events.removals, applied.events.removed_blocks), (2, 3));
    assert_eq!(applied.pending_removals, 0);
}

#[test]
fn batches_are_counted_by_their_size() {
    let index = queueing().build();
    index.store(worker(1), None, &chain(0, 700)).unwrap();
    for (from, to) in [(699, 700), (690, 699), (100, 690)] {
        index.remove(worker(1), &names(from..to));
        index.flush();
    }
    // 590 names are a batch of 512 and one of 78.
    let drains = index.stats().drains;
    let expected = [1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0];
    assert_eq!((drains.batches, drains.total(), drains.names), (expected, 4, 600));
}

#[test]
fn the_age_is_that_of_the_oldest_pending_name() {
    let index = queueing().build();
    for who in [1, 2] {
        index.store(worker(who), None, &chain(0, 4)).unwrap();
    }
    assert_eq!(index.stats().pending_age_ns, 0);
    let age = || Duration::from_nanos(index.stats().pending_age_ns);
    let begun = Instant::now();
    index.remove(worker(1), &names([3]));
    let handed_in = Instant::now();
    thread::sleep(Duration::from_millis(30));
    index.remove(worker(1), &names([2]));
    index.remove(worker(2), &names([3]));
    let least = handed_in.elapsed();
    let told = age();
    assert!(least <= told && told <= begun.elapsed(), "{told:?}, not from {least:?} on");
    index.flush();
    assert_eq!(age(), Duration::ZERO);
}

/// Fails if a part that a caller applies leaves the age that of the first name
/// there was, or makes it that of the last.
#[test]
fn the_age_comes_down_while_callers_apply_parts_of_a_queue() {
    const MOST: u64 = 1_000;
    let index = queueing().max_pending(MOST as usize).build();
    index.store(worker(1), None, &chain(0, 6 * MOST)).unwrap();
    let mut handed_in = Vec::new();
    let mut remove = |count| {
        for _ in 0..count {
            index.remove(worker(1), &names([handed_in.len() as u64]));
            handed_in.push(Instant::now());
        }
        let waiting = index.stats().pending_removals as usize;
        assert!(waiting > 0, "only parts are applied");
        let oldest = handed_in[handed_in.len() - waiting];
        let least = oldest.elapsed();
        let told = Duration::from_nanos(index.stats().pending_age_ns);
        assert!(told >= least, "{told:?} of {least:?}");
        told
    };
    remove(MOST);
    thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    let told = remove(1);
    assert!(told > Duration::from_millis(300), "names from before wait: {told:?}");
    let told = remove(4 * MOST);
    assert!(told <= begun.elapsed(), "{told:?}, but nothing from before waits");
    index.flush();
    assert_eq!(index.stats().pending_age_ns, 0);
}

/// Fails if a removal takes the time at which its lane last had any.
#[test]
fn a_removal_after_a_quiet_time_is_young() {
    let index = Index::builder().drain_threads(1).removal_delay(Duration::from_millis(1)).build();
    index.store(worker(1), None, &chain(0, 1_000)).unwrap();
    index.remove(worker(1), &names([999]));
    index.flush();
    thread::sleep(Duration::from_millis(400));
    for name in (900..999).rev() {
        index.remove(worker(1), &names([name]));
        let age = Duration::from_nanos(index.stats().pending_age_ns);
        assert!(age < Duration::from_millis(300), "{age:?}");
    }
}

/// Fails if a leaving lane is counted in neither place, or in both.
#[test]
fn counts_never_fall_while_workers_come_and_go() {
    let index = Index::builder().drain_threads(2).removal_delay(Duration::from_micros(50)).build();
    let done = AtomicBool::new(false);
    let cycles = 3_000;
    thread::scope(|scope| {
        let come_and_go = |id| {
            for cycle in 0..cycles {
                let own = id * 1_000_000 + cycle * 4;
                index.store(worker(id), None, &chain(own, own + 4)).unwrap();
                index.store(worker(id), None, &chain(own, own + 4)).unwrap();
                index.remove(worker(id), &names([own + 3]));
                index.remove_worker(worker(id));
            }
        };
        let writers: Vec<_> = (1..4).map(|id| scope.spawn(move || come_and_go(id))).collect();
        let (index, done) = (&index, &done);
        scope.spawn(move || {
            let mut before = counts(index);
            while !done.load(Ordering::Relaxed) {
                let now = counts(index);
                let fell = before.iter().zip(&now).any(|(before, now)| before > now);
                assert!(!fell, "{before:?}, then {now:?}");
                before = now;
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    index.flush();
    let events = index.stats().events;
    let EventCounts { stores, removals, removed_blocks, leavings, left_blocks, .. } = events;
    assert_eq!((stores, leavings), (6 * cycles, 3 * cycles));
    assert_eq!((events.stored_blocks, events.stored_again), (24 * cycles, 12 * cycles));
    assert_eq!((removals, removed_blocks, left_blocks), (3 * cycles, 3 * cycles, 9 * cycles));
}

fn counts(index: &Index) -> Vec<u64> {
    let stats = index.stats();
    let events = stats.events;
    let mut counts = vec![
        events.stores,
        events.stored_blocks,
        events.stored_again,
        // What `kvradix_event_blocks_total` calls applied.
        events.stored_blocks - events.stored_again,
        events.removals,
        events.removed_blocks,
        events.leavings,
        events.left_blocks,
        stats.unknown_removals,
        stats.drains.names,
    ];
    counts.extend(stats.drains.batches);
    counts
}

#[test]
fn what_is_held_is_what_was_stored_less_what_was_lost() {
    let index = Index::builder().drain_threads(1).run_blocks(8).build();
    thread::scope(|scope| {
        for id in 1..5 {
            let index = &index;
            scope.spawn(move || {
                for round in 0..400u64 {
                    let from = round % 37;
                    let parent = from.checked_sub(1).and_then(below);
                    let _ = index.store(worker(id), parent, &chain(from, from + 9));
                    index.remove(worker(id), &names([round % 11, round % 41, round % 3]));
                    match (round + id) % 50 {
                        0 => index.clear(worker(id)),
                        1 => index.remove_worker(worker(id)),
                        _ => {}
                    }
                }
            });
        }
    });
    index.flush();
    let stats = index.stats();
    let events = stats.events;
    let lost = events.removed_blocks + events.cleared_blocks + events.left_blocks;
    assert!(events.stored_again > 0 && lost > 0, "{events:?}");
    assert_eq!(stats.held_blocks, events.stored_blocks - events.stored_again - lost);
    let held: usize = index.workers().into_iter().map(|known| index.held(known)).sum();
    assert_eq!(stats.held_blocks, held as u64);
}

/// Fails if `stats` waits for a lane: an export has its worker's locked.
#[test]
fn stats_wait_for_no_event_of_any_worker() {
    let index = Index::builder().drain_threads(0).run_blocks(8).build();
    for first in (0..400_000).step_by(1_000) {
        index.store(worker(1), None, &chain(first, first + 1_000)).unwrap();
    }
    let (exporting, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_secs(20);
            while !done.load(Ordering::SeqCst) && Instant::now() < deadline {
                exporting.store(true, Ordering::SeqCst);
                let events = index.export(worker(1)).len();
                exporting.store(false, Ordering::SeqCst);
                assert!(events > 0);
                // Its result is dropped, which takes a while as well.
            }
        });
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut within = 0;
        // Five in a row that all begin and end while one export runs.
        while within < 5 {
            assert!(Instant::now() < deadline, "only {within} within an export");
            let begun = exporting.load(Ordering::SeqCst);
            assert_eq!(index.stats().held_blocks, 400_000);
            let ended = exporting.load(Ordering::SeqCst);
            within = if begun && ended { within + 1 } else { 0 };
        }
        done.store(true, Ordering::SeqCst);
    });
}

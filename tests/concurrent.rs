//! Writers and readers at the same time. What each writer's workers hold is
//! its own doing, so at the end the index equals what the writers did one
//! after the other; and what nobody touches is seen whole all the while.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::compare::{SETUPS, queries_per_mode};
use common::stream::{Mode, Naming, Op, streams};
use common::{answer, assert_empty, below, blocks, names, worker};
use kvradix::reference::ReferenceIndex;
use kvradix::{Event, Index, LocalHash, Matches, SequenceHash, WorkerId};

/// Holds `CHAIN` blocks throughout.
const KEPT: WorkerId = worker(900);
/// Holds the first three blocks and some below the fourth, never the fourth.
const HOLED: WorkerId = worker(901);
/// Takes and leaves the first `SHORT` blocks.
const SHORT_ONE: WorkerId = worker(902);
/// Comes, takes the whole chain, and leaves again.
const COMING_AND_GOING: WorkerId = worker(903);
const CHAIN: u64 = 40;
const SHORT: u64 = 10;

/// Content that the random streams have too: their first is 0 and their
/// second `u64::MAX`.
fn content(position: u64) -> u64 {
    if position.is_multiple_of(3) { u64::MAX } else { 0 }
}

fn chain(name: u64) -> Vec<kvradix::Block> {
    blocks((0..CHAIN).map(|position| (name + position, content(position))))
}

fn mode(naming: Naming) -> Mode {
    Mode { workers: 4, alphabet: 2, prompt: 32, naming, moves: 30, ..Mode::BASE }
}

/// One writer's part, on its own.
fn write(index: &Index, ops: &[Op]) {
    let mut matches = Matches::new();
    for op in ops {
        match op {
            Op::Store { worker, parent, blocks } => {
                let stored = index.store(*worker, *parent, blocks);
                // Nobody else evicts what this worker has just stored.
                if let (Ok(()), Some(last)) = (stored, blocks.last()) {
                    assert!(index.has(*worker, last.sequence));
                }
            }
            Op::Remove { worker, names } => index.remove(*worker, names),
            Op::Clear { worker } => index.clear(*worker),
            Op::Leave { worker } => index.remove_worker(*worker),
            Op::LeaveRanks { id } => index.remove_ranks(*id),
            Op::Apply { events } => _ = index.apply_all(events),
            Op::Ask { query } => {
                index.matches_into(query, &mut matches);
                assert!(matches.iter().all(|found| found.depth as usize <= query.len()));
            }
            Op::Flush => index.flush(),
            Op::FlushWorker { worker } => index.flush_worker(*worker),
            Op::Census { .. } => _ = index.stats(),
            Op::Export { worker, .. } => _ = index.export(*worker),
        }
    }
}

/// The same on the reference.
fn write_reference(reference: &mut ReferenceIndex, ops: &[Op]) {
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
}

/// What a reader may see of the workers whose holding is known, at any moment.
fn read(index: &Index, matches: &mut Matches, contents: &[u64]) {
    index.matches_into(LocalHash::from_slice(contents), matches);
    let length = contents.len() as u64;
    assert_eq!(u64::from(matches.depth_of(KEPT)), length.min(CHAIN), "seen short, or too long");
    assert_eq!(u64::from(matches.depth_of(HOLED)), length.min(3), "a hole is exact");
    assert!(u64::from(matches.depth_of(SHORT_ONE)) <= length.min(SHORT));
    assert!(u64::from(matches.depth_of(COMING_AND_GOING)) <= length.min(CHAIN));
    assert!(matches.iter().all(|found| u64::from(found.depth) <= length));
}

/// The known workers' part, until the writers are done.
fn come_and_go(index: &Index, done: &AtomicBool) {
    let name = |position| 5_000 + position;
    while !done.load(Ordering::Acquire) {
        index.store(SHORT_ONE, None, &chain(5_000)[..SHORT as usize]).unwrap();
        index.store(COMING_AND_GOING, None, &chain(KEPT.id)).unwrap();
        // What hangs below its hole comes and goes.
        let deep = chain(7_000)[8..14].to_vec();
        index.store(HOLED, below(7_007), &deep).unwrap();
        index.remove(SHORT_ONE, &names((0..SHORT).rev().map(name)));
        index.remove(HOLED, &deep.iter().map(|block| block.sequence).collect::<Vec<_>>());
        index.remove_worker(COMING_AND_GOING);
    }
    index.remove_worker(SHORT_ONE);
}

fn writers_and_readers(naming: Naming, seed: u64) {
    for setup in &SETUPS {
        println!("set-up: {}", setup.name);
        let index = (setup.build)();
        index.store(KEPT, None, &chain(KEPT.id)).unwrap();
        index.store(HOLED, None, &chain(7_000)[..8]).unwrap();
        index.remove(HOLED, &names([7_003]));
        index.flush();

        let queries = queries_per_mode() / 10;
        let streams = streams(mode(naming), seed, queries, 3);
        let (done, writing) = (AtomicBool::new(false), AtomicUsize::new(streams.len()));
        std::thread::scope(|scope| {
            for ops in &streams {
                scope.spawn(|| {
                    // Also when an assertion fails: else the others never end.
                    let _last = Last { writing: &writing, done: &done };
                    write(&index, ops);
                });
            }
            scope.spawn(|| come_and_go(&index, &done));
            for reader in 0..2 {
                let (index, done) = (&index, &done);
                scope.spawn(move || {
                    let contents: Vec<u64> = (0..CHAIN + 2).map(content).collect();
                    let mut matches = Matches::new();
                    let mut length = 0;
                    while !done.load(Ordering::Acquire) {
                        length = (length + 1 + reader) % contents.len();
                        read(index, &mut matches, &contents[..length]);
                        read(index, &mut matches, &contents);
                    }
                });
            }
        });

        let mut reference = ReferenceIndex::new();
        reference.store(KEPT, None, &chain(KEPT.id)).unwrap();
        reference.store(HOLED, None, &chain(7_000)[..8]).unwrap();
        reference.remove(HOLED, &names([7_003]));
        streams.iter().for_each(|ops| write_reference(&mut reference, ops));
        equals_the_reference(&index, &reference, &streams);

        for known in index.workers() {
            index.remove_worker(known);
        }
        assert_empty(&index);
        assert_eq!(index.workers(), []);
    }
}

/// Counts a writer out; the last one tells the others.
struct Last<'a> {
    writing: &'a AtomicUsize,
    done: &'a AtomicBool,
}

impl Drop for Last<'_> {
    fn drop(&mut self) {
        let last = self.writing.fetch_sub(1, Ordering::AcqRel) == 1;
        if last || std::thread::panicking() {
            self.done.store(true, Ordering::Release);
        }
    }
}

fn equals_the_reference(index: &Index, reference: &ReferenceIndex, streams: &[Vec<Op>]) {
    index.flush();
    index.check();
    for op in streams.iter().flatten() {
        match op {
            Op::Ask { query } => {
                let (got, expected) = (index.matches(query), reference.matches(query));
                assert_eq!(answer(&got), answer(&expected), "{query:x?}");
            }
            Op::Census { names } => {
                for &(worker, name) in names {
                    assert_eq!(index.has(worker, name), reference.has(worker, name));
                }
            }
            _ => {}
        }
    }
    assert_eq!(index.workers(), reference.workers());
    for known in index.workers() {
        assert_eq!(index.held(known), reference.held(known), "{known}");
    }
    let (got, expected) = (index.stats(), reference.stats());
    assert_eq!(got.tree_blocks, expected.tree_blocks);
    assert_eq!(got.held_blocks, expected.held_blocks);
    assert!(got.lookup_entries <= reference.held_places());
    assert_eq!(got.refused_blocks, expected.refused_blocks);
}

#[test]
fn writers_of_one_name_space_beside_readers() {
    writers_and_readers(Naming::Shared, 1);
}

#[test]
fn writers_with_their_own_names_beside_readers() {
    writers_and_readers(Naming::PerWorker, 2);
}

#[test]
fn writers_with_two_names_for_a_place_beside_readers() {
    writers_and_readers(Naming::TwoShared, 3);
}

#[test]
fn writers_whose_names_clash_beside_readers() {
    writers_and_readers(Naming::Clashing, 4);
}

/// An export is a cut of its worker at one moment: what is kept is there, and
/// of two blocks that are taken together and left from below it never has
/// just the deeper one, nor a hole.
#[test]
fn an_export_beside_writers_is_one_moment_of_its_worker() {
    for setup in &SETUPS {
        println!("set-up: {}", setup.name);
        let index = (setup.build)();
        index.store(KEPT, None, &chain(KEPT.id)).unwrap();
        let end = KEPT.id + CHAIN - 1;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..400_u64 {
                    let two = [10_000 + round * 2, 10_001 + round * 2];
                    let pair = blocks(two.map(|name| (name, name % 6)));
                    index.store(KEPT, below(end), &pair).unwrap();
                    index.store(HOLED, None, &chain(KEPT.id)[..20]).unwrap();
                    index.remove(KEPT, &names(two.into_iter().rev()));
                    index.remove_worker(HOLED);
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                let events = index.export(KEPT);
                let mut loaded = ReferenceIndex::new();
                assert_eq!(loaded.apply_all(&events), []);
                let held = loaded.held(KEPT) as u64;
                assert!((CHAIN..=CHAIN + 2).contains(&held), "{held} of {CHAIN} and up to two");
                for position in 0..CHAIN {
                    assert!(loaded.has(KEPT, SequenceHash(KEPT.id + position)));
                }
                assert!(events.iter().all(|event| matches!(event, Event::Stored { .. })));
            }
        });
    }
}

/// Slots are handed out again; a reader never takes the new worker for the
/// old one.
#[test]
fn a_slot_used_again_is_never_read_as_its_old_worker() {
    for setup in &SETUPS {
        println!("set-up: {}", setup.name);
        let index = (setup.build)();
        let contents: Vec<u64> = (0..CHAIN).map(content).collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..600_u64 {
                    // Even workers only ever hold two blocks, odd ones all.
                    let (even, odd) = (worker(round * 2), worker(round * 2 + 1));
                    index.store(even, None, &chain(0)[..2]).unwrap();
                    index.remove_worker(even);
                    index.store(odd, None, &chain(0)).unwrap();
                    index.remove_worker(odd);
                }
                done.store(true, Ordering::Release);
            });
            let mut matches = Matches::new();
            while !done.load(Ordering::Acquire) {
                index.matches_into(LocalHash::from_slice(&contents), &mut matches);
                for found in &matches {
                    let most = if found.worker.id.is_multiple_of(2) { 2 } else { CHAIN };
                    assert!(u64::from(found.depth) <= most, "{found:?}");
                }
            }
        });
        assert_empty(&index);
    }
}

/// A store gives up the old place of a moved name only where that place is
/// still the worker's by this name. Here the moved name's entry is another
/// worker's; before the batch is in, that worker lets the place go and the
/// batch takes it under a name of its own, which it must keep.
///
/// Fails if `give_up_moved` (src/tree/store.rs) asks for the place alone.
#[test]
fn a_store_keeps_a_place_that_another_worker_left_during_it() {
    let index = Index::builder().drain_threads(0).run_blocks(1).build();
    let (other, kept, storing) = (worker(1), worker(2), worker(3));
    // What hangs below keeps the place of content 40 without a holder.
    index.store(kept, None, &blocks((1..=41).map(|n| (100 + n, n)))).unwrap();
    index.remove(kept, &names([140]));
    index.store(other, None, &blocks((1..40).map(|n| (200 + n, n)))).unwrap();
    // Begins with the other's name, ends at its place.
    let batch = blocks((1..=40).map(|n| (if n == 1 { 7 } else { 300 + n }, n)));
    let done = AtomicBool::new(false);
    let mut lost = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                index.store(other, below(239), &blocks([(7, 40)])).unwrap();
                index.remove(other, &names([7]));
            }
        });
        for _ in 0..20_000 {
            index.store(storing, None, &batch).unwrap();
            lost += usize::from(index.held(storing) != batch.len());
            index.clear(storing);
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(lost, 0, "stores that lost a block");
    index.check();
}

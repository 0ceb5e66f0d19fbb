//! Panics of the caller's own, in the few places where its code runs among
//! the index's: between events, between queries, in destructors.
//!
//! Panics inside of events are injected by fault-tests.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use common::{assert_empty, below, blocks, depth, names, query, worker};
use kvradix::{Event, Index, Matches, WorkerId};

const A: WorkerId = worker(1);
const B: WorkerId = worker(2);

/// A panic without a word on standard error.
fn panic_quietly() -> ! {
    resume_unwind(Box::new("a caller's panic"))
}

fn stored(worker: WorkerId, name: u64) -> Event {
    Event::Stored { worker, parent: None, blocks: blocks([(name, name)]) }
}

#[test]
fn an_iterator_of_events_that_panics_leaves_those_before_it_applied() {
    let index = Index::new();
    let events = [stored(A, 1), stored(A, 2), stored(A, 3)];
    let panicking = (0..3).map(|n| if n < 2 { &events[n] } else { panic_quietly() });
    assert!(catch_unwind(AssertUnwindSafe(|| index.apply_all(panicking))).is_err());
    assert_eq!((index.held(A), index.poisoned()), (2, vec![]));
    index.store(A, below(2), &blocks([(4, 4)])).unwrap();
    assert_eq!(depth(&index, A, &[2, 4]), 2);
    index.check();
}

/// A reader's thread that dies, with its answer, holds nothing back.
#[test]
fn readers_that_die_between_queries_keep_back_nothing_that_is_retired() {
    let index = Index::builder().drain_threads(0).build();
    index.store(A, None, &blocks((0..64).map(|n| (n, n)))).unwrap();
    for round in 0..20 {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut matches = Matches::new();
                (0..10).for_each(|_| index.matches_into(&query(0..64), &mut matches));
                assert_eq!(matches.depth_of(A), 64);
                panic_quietly()
            });
            assert!(reader.join().is_err());
        });
        for n in 0..100 {
            index.store(B, None, &blocks([(1_000 + n, 1_000 * round + n)])).unwrap();
        }
        index.clear(B);
        let start = Instant::now();
        while index.stats().retired_bytes > 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", index.stats());
            index.flush();
        }
    }
}

/// Says what it did while a panic took it apart.
struct LastWill<'a>(&'a Index);

impl Drop for LastWill<'_> {
    fn drop(&mut self) {
        self.0.store(A, None, &blocks([(1, 1), (2, 2), (3, 3)])).unwrap();
        self.0.remove(A, &names([3]));
        self.0.store(B, None, &blocks([(1, 1), (2, 9)])).unwrap();
        self.0.remove(B, &names([2, 1]));
        assert_eq!(depth(self.0, A, &[1, 2, 3]), 2);
    }
}

/// An event that runs while its thread is panicking is an event like others.
#[test]
fn events_of_a_destructor_that_a_panic_runs_are_whole() {
    for index in [Index::new(), Index::builder().drain_threads(0).build()] {
        let dying = || {
            let _will = LastWill(&index);
            panic_quietly()
        };
        assert!(catch_unwind(AssertUnwindSafe(dying)).is_err());
        assert_eq!((index.poisoned(), index.held(A), index.held(B)), (vec![], 2, 0));
        index.check();
        index.remove_worker(A);
        index.remove_worker(B);
        assert_empty(&index);
    }
}

//! Queries by 1 to 8 threads at the same time, all for one hot prompt of 64
//! blocks that 8 workers hold.
//!
//! - `quiet`: nothing else happens. Readers write no memory they share, so
//!   twice the threads give twice the queries until the cores are used up.
//! - `beside a writer`: one more thread stores and removes unique suffixes of
//!   8 blocks below that prompt for as long as the queries run.
//!
//! The rate is that of all threads together.

// Barriers and flags for the threads here, outside of the library.

mod common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{chain, names, query, shared_chain, worker};
use criterion::{BenchmarkId, Throughput};
use kvradix::{Block, Index, LocalHash, Matches};

/// Queries of each thread that count as one iteration.
const QUERIES: u64 = 1_000;

fn main() {
    let mut criterion = common::criterion();
    let prompt = chain(0, 64);
    let index = shared_chain(&prompt, 8);
    let query = query(&prompt);
    for (title, writes) in [("quiet", false), ("beside a writer", true)] {
        let mut group = criterion.benchmark_group(format!("contention/{title}"));
        for threads in [1, 2, 4, 8] {
            group.throughput(Throughput::Elements(QUERIES * threads as u64));
            group.bench_function(BenchmarkId::from_parameter(threads), |bencher| {
                bencher.iter_custom(|iterations| {
                    let writer = writes.then_some(&prompt[..]);
                    ask(&index, &query, threads, iterations * QUERIES, writer)
                });
            });
        }
        group.finish();
    }
    criterion.final_summary();
}

/// How long the threads take for so many queries each, beside a writer below
/// the given prompt.
fn ask(
    index: &Index,
    query: &[LocalHash],
    threads: usize,
    queries: u64,
    writes_below: Option<&[Block]>,
) -> Duration {
    let (start, done) = (Barrier::new(threads + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        if let Some(prompt) = writes_below {
            scope.spawn(|| churn(index, prompt, &done));
        }
        let readers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut matches = Matches::new();
                    start.wait();
                    for _ in 0..queries {
                        index.matches_into(query, &mut matches);
                        assert_eq!(matches.len(), 8);
                    }
                })
            })
            .collect();
        start.wait();
        let started = Instant::now();
        let answered: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        let took = started.elapsed();
        // The writer ends also where a reader has failed.
        done.store(true, Ordering::Relaxed);
        assert!(answered.iter().all(Result::is_ok), "every query finds eight workers");
        took
    })
}

/// Stores suffixes below the prompt and removes them, until it is done.
fn churn(index: &Index, prompt: &[Block], done: &AtomicBool) {
    let parent = prompt.last().map(|block| block.sequence);
    let mut number = 0;
    while !done.load(Ordering::Relaxed) {
        number += 1;
        let suffix = chain(number, 8);
        index.store(worker(0), parent, &suffix).expect("the prompt stays");
        index.remove(worker(0), &names(&suffix));
    }
    index.flush();
}

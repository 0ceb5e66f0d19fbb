//! Removals by one worker's thread, until they are visible: each measurement
//! ends with a flush.
//!
//! - `tail first`: 256 suffixes of 16 blocks below one prompt go, each from
//!   its end, one name or 16 an event. `drained` leaves them to the index's
//!   drain thread, `by the caller` applies them in the call. In names a second.
//! - `drop worker`: a worker that holds 16,384 blocks leaves: `alone`, so that
//!   the tree goes with it, or `shared` with seven others, so that it stays.

mod common;

use common::{PROMPT, chain, names, shared_chain, store, suffixes, worker};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use kvradix::{Index, SequenceHash};

/// Suffixes, and the blocks of each.
const SUFFIXES: (usize, usize) = (256, 16);

fn main() {
    let mut criterion = common::criterion();
    tail_first(&mut criterion);
    drop_worker(&mut criterion);
    criterion.final_summary();
}

fn tail_first(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("remove/tail first");
    let prompt = chain(0, PROMPT);
    let parent = prompt.last().map(|block| block.sequence);
    let (_, suffixes) = suffixes(&prompt, SUFFIXES.0, SUFFIXES.1);
    let evicted: Vec<SequenceHash> =
        suffixes.iter().flat_map(|suffix| names(suffix).into_iter().rev()).collect();
    group.throughput(Throughput::Elements(evicted.len() as u64));
    for (way, threads) in [("drained", 1), ("by the caller", 0)] {
        let build = || Index::builder().drain_threads(threads).build();
        for batch in [1, 16] {
            group.bench_function(BenchmarkId::new(way, batch), |bencher| {
                bencher.iter_batched_ref(
                    || {
                        let index = build();
                        store(&index, worker(0), None, &prompt, PROMPT);
                        for suffix in &suffixes {
                            store(&index, worker(0), parent, suffix, SUFFIXES.1);
                        }
                        index
                    },
                    |index| {
                        for names in evicted.chunks(batch) {
                            index.remove(worker(0), names);
                        }
                        index.flush();
                    },
                    BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
}

fn drop_worker(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("remove/drop worker");
    let prompt = chain(0, PROMPT);
    let parent = prompt.last().map(|block| block.sequence);
    let suffixes: Vec<_> = (1..=1_023).map(|number| chain(number, 16)).collect();
    for (sharing, holders) in [("alone", 1), ("shared", 8)] {
        group.bench_function(sharing, |bencher| {
            bencher.iter_batched_ref(
                || {
                    let index = shared_chain(&prompt, holders);
                    for suffix in &suffixes {
                        for holder in 0..holders {
                            store(&index, worker(holder), parent, suffix, 16);
                        }
                    }
                    index
                },
                |index| {
                    index.remove_worker(worker(0));
                    index.flush();
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

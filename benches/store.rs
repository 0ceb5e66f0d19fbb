//! Stores by one thread, in blocks a second.
//!
//! - `append`: a worker decodes: 1,024 blocks, one after the other or 16 at a
//!   time, at the end of its chain. One run grows.
//! - `join`: a worker stores, in such batches, 1,024 blocks that another holds
//!   already: columns are compared, the lookup is not touched.
//! - `branch`: 1,000 new suffixes of 8 blocks below one prompt of 16, which
//!   becomes a hub on the way. Nodes and lookup entries are made.
//!
//! Every measurement begins with an index that is as good as new.

mod common;

use common::{BATCH, PROMPT, chain, shared_chain, store, worker};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use kvradix::Index;

/// Blocks that `append` and `join` store.
const BLOCKS: usize = 1_024;

fn main() {
    let mut criterion = common::criterion();
    append(&mut criterion);
    join(&mut criterion);
    branch(&mut criterion);
    criterion.final_summary();
}

fn append(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("store/append");
    let blocks = chain(0, BLOCKS);
    group.throughput(Throughput::Elements(BLOCKS as u64));
    for batch in [1, BATCH] {
        group.bench_function(BenchmarkId::from_parameter(batch), |bencher| {
            bencher.iter_batched_ref(
                Index::new,
                |index| store(index, worker(0), None, &blocks, batch),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn join(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("store/join");
    let blocks = chain(0, BLOCKS);
    group.throughput(Throughput::Elements(BLOCKS as u64));
    for batch in [1, BATCH, BLOCKS] {
        group.bench_function(BenchmarkId::from_parameter(batch), |bencher| {
            bencher.iter_batched_ref(
                || shared_chain(&blocks, 1),
                |index| store(index, worker(1), None, &blocks, batch),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn branch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("store/branch");
    let prompt = chain(0, PROMPT);
    let parent = prompt.last().map(|block| block.sequence);
    let suffixes: Vec<_> = (1..=1_000).map(|number| chain(number, 8)).collect();
    group.throughput(Throughput::Elements(8 * suffixes.len() as u64));
    group.bench_function("1000", |bencher| {
        bencher.iter_batched_ref(
            || shared_chain(&prompt, 1),
            |index| {
                for suffix in &suffixes {
                    store(index, worker(0), parent, suffix, BATCH);
                }
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

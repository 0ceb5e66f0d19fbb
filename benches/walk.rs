//! One query on one thread while nothing else happens.
//!
//! - `depth`: one worker holds the queried chain, of so many blocks. What a
//!   block adds is its comparison; every 4,096 blocks another node.
//! - `holders`: so many workers hold the same 64 blocks. What a holder adds is
//!   its line in the answer.
//! - `levels`: 64 workers hold a 512-block chain to 64 different depths.
//! - `fan out`: below a prompt of 16 blocks hang so many suffixes of 8, and
//!   each query asks for another one: up to 12 are listed in the node's view,
//!   more are in a table; many do not fit the processor's caches.
//!
//! Buffers are warm, as a router thread's are.

mod common;

use common::{BATCH, PROMPT, chain, mix, query, shared_chain, store, suffixes, worker};
use criterion::{BenchmarkId, Criterion, Throughput};
use kvradix::{Index, Matches};

fn main() {
    let mut criterion = common::criterion();
    depth(&mut criterion);
    holders(&mut criterion);
    levels(&mut criterion);
    fan_out(&mut criterion);
    criterion.final_summary();
}

fn depth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("walk/depth");
    for depth in [1, 8, 64, 512, 4_096, 32_768] {
        let blocks = chain(0, depth);
        let index = shared_chain(&blocks, 1);
        let (query, mut matches) = (query(&blocks), Matches::new());
        group.throughput(Throughput::Elements(depth as u64));
        group.bench_function(BenchmarkId::from_parameter(depth), |bencher| {
            bencher.iter(|| index.matches_into(&query, &mut matches));
        });
        assert_eq!(matches.depth_of(worker(0)), depth as u32);
    }
    group.finish();
}

fn holders(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("walk/holders");
    for holders in [1, 8, 64, 128, 1_024] {
        let blocks = chain(0, 64);
        let index = shared_chain(&blocks, holders);
        let (query, mut matches) = (query(&blocks), Matches::new());
        group.bench_function(BenchmarkId::from_parameter(holders), |bencher| {
            bencher.iter(|| index.matches_into(&query, &mut matches));
        });
        assert_eq!(matches.len(), holders);
    }
    group.finish();
}

fn levels(criterion: &mut Criterion) {
    let index = Index::new();
    let blocks = chain(0, 512);
    for holder in 0..64 {
        store(&index, worker(holder), None, &blocks[..(holder + 1) * 8], BATCH);
    }
    let (query, mut matches) = (query(&blocks), Matches::new());
    criterion.bench_function("walk/levels/64", |bencher| {
        bencher.iter(|| index.matches_into(&query, &mut matches));
    });
    assert_eq!(matches.len(), 64);
}

fn fan_out(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("walk/fan out");
    let prompt = chain(0, PROMPT);
    for children in [1, 12, 1_000, 100_000] {
        let (index, suffixes) = suffixes(&prompt, children, 8);
        let ask = |suffix: &Vec<_>| query(prompt.iter().chain(suffix));
        // In an order that no prefetcher guesses.
        let mut queries: Vec<_> = suffixes.iter().map(ask).collect();
        queries.sort_by_key(|query| mix(query[PROMPT].0));
        let (mut queries, mut matches) = (queries.iter().cycle(), Matches::new());
        group.bench_function(BenchmarkId::from_parameter(children), |bencher| {
            bencher.iter(|| {
                let query = queries.next().expect("a cycle has no end");
                index.matches_into(query, &mut matches);
            });
        });
        assert_eq!(matches.depth_of(worker(0)), PROMPT as u32 + 8);
    }
    group.finish();
}

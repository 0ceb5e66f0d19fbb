//! Instructions of the hot paths. Each benchmark does its operation
//! `TIMES` times on an index that was filled before the counting began, so
//! its figure is `TIMES` operations and a loop. Removals apply in the call
//! (no drain threads): a count that depends on other threads would not
//! repeat.

use std::hint::black_box;

use gungraun::{library_benchmark, library_benchmark_group, main};
use kvradix::{Block, Index, LocalHash, Matches, SequenceHash, WorkerId};

/// Operations of each benchmark.
const TIMES: u64 = 100;
/// Blocks of a stored event.
const BATCH: u64 = 8;

const fn worker(id: u64) -> WorkerId {
    WorkerId::new(id, 0)
}

/// Blocks with these numbers; the number is what tells them apart.
fn blocks(numbers: std::ops::Range<u64>) -> Vec<Block> {
    numbers.map(|n| Block { sequence: SequenceHash(n), local: LocalHash(n) }).collect()
}

fn names(numbers: std::ops::Range<u64>) -> Vec<SequenceHash> {
    numbers.map(SequenceHash).collect()
}

fn locals(numbers: std::ops::Range<u64>) -> Vec<LocalHash> {
    numbers.map(LocalHash).collect()
}

fn empty() -> Index {
    Index::builder().drain_threads(0).build()
}

fn store(index: &Index, who: u64, parent: Option<u64>, blocks: &[Block]) {
    index.store(worker(who), parent.map(SequenceHash), blocks).expect("the parent is there");
}

/// An index whose workers hold the blocks 0 to `length`.
fn shared_prompt(length: u64, workers: u64) -> Index {
    let index = empty();
    for who in 0..workers {
        store(&index, who, None, &blocks(0..length));
    }
    index
}

struct Query {
    index: Index,
    prompt: Vec<LocalHash>,
    matches: Matches,
}

/// `length` blocks that `workers` hold, asked for once already.
fn held(length: u64, workers: u64) -> Query {
    let (index, mut matches) = (shared_prompt(length, workers), Matches::new());
    let prompt = locals(0..length);
    index.matches_into(&prompt, &mut matches);
    assert_eq!(matches.len() as u64, workers);
    Query { index, prompt, matches }
}

/// 64 blocks that nobody holds.
fn missed() -> Query {
    let mut query = held(64, 8);
    query.prompt = locals(1_000..1_064);
    query
}

#[library_benchmark]
#[bench::blocks_64_holders_8(held(64, 8))]
#[bench::blocks_512_holders_128(held(512, 128))]
#[bench::blocks_1_holder_1(held(1, 1))]
#[bench::missed(missed())]
fn matches_into(mut query: Query) -> Query {
    for _ in 0..TIMES {
        query.index.matches_into(black_box(&query.prompt), &mut query.matches);
        for found in query.matches.iter() {
            black_box(found);
        }
    }
    query
}

/// An index and stores to come: who, below which name, what.
struct Stores {
    index: Index,
    events: Vec<(u64, Option<u64>, Vec<Block>)>,
}

/// One run, grown by a batch at a time.
fn appended() -> Stores {
    let index = shared_prompt(BATCH, 1);
    let batch = |n| (0, Some(n * BATCH - 1), blocks(n * BATCH..(n + 1) * BATCH));
    Stores { index, events: (1..=TIMES).map(batch).collect() }
}

/// What another worker holds already.
fn joined() -> Stores {
    let index = shared_prompt(TIMES * BATCH, 1);
    let batch = |n: u64| (1, (n * BATCH).checked_sub(1), blocks(n * BATCH..(n + 1) * BATCH));
    Stores { index, events: (0..TIMES).map(batch).collect() }
}

/// A suffix of its own below the same prompt, each time.
fn branched() -> Stores {
    let index = shared_prompt(16, 1);
    let batch = |n| (0, Some(15), blocks(1_000 + n * BATCH..1_000 + (n + 1) * BATCH));
    Stores { index, events: (0..TIMES).map(batch).collect() }
}

#[library_benchmark]
#[bench::append(appended())]
#[bench::join(joined())]
#[bench::branch(branched())]
fn store_8_blocks(stores: Stores) -> Stores {
    for (who, parent, blocks) in &stores.events {
        store(&stores.index, *who, *parent, blocks);
    }
    stores
}

/// An index and names to be removed, a block an event.
fn evicted(workers: u64) -> (Index, Vec<SequenceHash>) {
    let mut tail_first = names(0..TIMES);
    tail_first.reverse();
    (shared_prompt(TIMES, workers), tail_first)
}

#[library_benchmark]
#[bench::last_holder(evicted(1))]
#[bench::one_of_two(evicted(2))]
fn remove_tail((index, names): (Index, Vec<SequenceHash>)) -> Index {
    for name in names {
        index.remove(worker(0), &[name]);
    }
    index
}

// Stores and evicts a suffix of its own below a prompt of 16 blocks.
#[library_benchmark]
#[bench::suffix_8(branched())]
fn churn(stores: Stores) -> Stores {
    for (who, parent, blocks) in &stores.events {
        store(&stores.index, *who, *parent, blocks);
        let names = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| blocks[7 - at].sequence);
        stores.index.remove(worker(*who), &names);
    }
    stores
}

/// A worker with `TIMES` suffixes below a prompt.
fn leaving() -> Index {
    let Stores { index, events } = branched();
    for (who, parent, blocks) in &events {
        store(&index, *who, *parent, blocks);
    }
    index
}

#[library_benchmark]
#[bench::suffixes_100(leaving())]
fn remove_worker(index: Index) -> Index {
    index.remove_worker(worker(0));
    index
}

library_benchmark_group!(name = queries; benchmarks = matches_into);
library_benchmark_group!(
    name = events;
    benchmarks = store_8_blocks, remove_tail, churn, remove_worker
);

main!(library_benchmark_groups = queries, events);

//! Writers, readers and leavers on real threads, each thread joined by hand:
//! what the sanitizer cannot follow (std's locks and scopes, rayon) is not
//! here. `--planted` adds a race that must be reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::thread;

use kvradix::{Block, Index, LocalHash, SequenceHash, WorkerId};

const WRITERS: u64 = 4;
/// Holds `STABLE` all along.
const KEPT: WorkerId = WorkerId::new(99, 0);
const STABLE: [u64; 6] = [0, 1, 0, 0, 1, 1];

/// A generator of its own, so that threads share nothing but the index.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Content that the others have too.
    fn content(&mut self) -> Vec<u64> {
        let common = self.below(STABLE.len() as u64) as usize;
        let mut content = STABLE[..common].to_vec();
        content.extend((0..1 + self.below(6)).map(|_| 2 + self.below(5)));
        content
    }
}

/// A chain's names are those of its prefixes: shared, or the worker's own.
fn chain(content: &[u64], salt: u64) -> Vec<Block> {
    let mut name = salt;
    let block = |&local: &u64| {
        name = (name ^ (local + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Block { sequence: SequenceHash(name), local: LocalHash(local) }
    };
    content.iter().map(block).collect()
}

fn write(index: &Index, id: u64, rounds: u64) {
    let (worker, mut random) = (WorkerId::new(id, 0), Random(id + 1));
    // Every other worker has its own names.
    let salt = if id.is_multiple_of(2) { 0 } else { id };
    for round in 0..rounds {
        let blocks = chain(&random.content(), salt);
        index.store(worker, None, &blocks).expect("a root store is accepted");
        let gone = chain(&random.content(), salt);
        let names: Vec<_> = gone.iter().rev().map(|block| block.sequence).collect();
        index.remove(worker, &names);
        match round % 64 {
            0 => index.remove_worker(worker),
            16 => index.clear(worker),
            32 => _ = index.export(worker),
            48 => index.flush(),
            _ => {}
        }
    }
    index.remove_worker(worker);
}

fn read(index: &Index, done: &AtomicBool, seed: u64) -> u64 {
    let (mut random, mut queries) = (Random(seed), 0);
    while !done.load(Ordering::Acquire) {
        let query = random.content();
        let same = query.iter().zip(&STABLE).take_while(|(a, b)| a == b).count();
        let found = index.matches(LocalHash::from_slice(&query));
        assert_eq!(found.depth_of(KEPT) as usize, same, "a stable holder is short");
        queries += 1;
    }
    queries
}

/// A value behind a pointer that is published without a release.
fn planted() {
    let cell = Arc::new(AtomicPtr::new(Box::into_raw(Box::new(1))));
    let other = cell.clone();
    let writer = thread::spawn(move || {
        for n in 0..10_000 {
            other.store(Box::into_raw(Box::new(n)), Ordering::Relaxed);
        }
    });
    // The writer is at work: what is read from now on is his.
    let first = cell.load(Ordering::Relaxed);
    while cell.load(Ordering::Relaxed) == first {
        thread::yield_now();
    }
    // SAFETY: nothing is freed. That the value is there is what nobody says.
    let sum: u64 = (0..10_000).map(|_| unsafe { *cell.load(Ordering::Acquire) }).sum();
    writer.join().expect("it ended well");
    println!("planted: {}", sum > 0);
}

fn main() {
    let mut args = std::env::args().skip(1);
    let first = args.next();
    if first.as_deref() == Some("--planted") {
        return planted();
    }
    let rounds = first.map_or(2_000, |rounds| rounds.parse().expect("a number of rounds"));
    // Small, so that rare paths are common.
    let index = Index::builder().drain_threads(0).run_blocks(4).hub_threshold(2).build();
    let (index, done) = (Arc::new(index), Arc::new(AtomicBool::new(false)));
    index.store(KEPT, None, &chain(&STABLE, KEPT.id)).expect("stored");
    let writers: Vec<_> = (0..WRITERS)
        .map(|id| {
            let index = index.clone();
            thread::spawn(move || write(&index, id, rounds))
        })
        .collect();
    let readers: Vec<_> = (0..2)
        .map(|seed| {
            let (index, done) = (index.clone(), done.clone());
            thread::spawn(move || read(&index, &done, seed + 1_000))
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().expect("it ended well"));
    done.store(true, Ordering::Release);
    let queries: u64 =
        readers.into_iter().map(|reader| reader.join().expect("it ended well")).sum();
    index.flush();
    index.check();
    index.remove_worker(KEPT);
    let left = index.stats();
    assert_eq!((left.tree_blocks, left.lookup_entries, left.nodes), (0, 0, 0), "left behind");
    println!("{WRITERS} writers of {rounds} rounds, {queries} queries beside them: as it must be");
}

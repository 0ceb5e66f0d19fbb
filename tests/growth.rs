//! Cost grows as the work grows, not with what is there already. Where time
//! is taken it is this thread's own, or the least of many short rounds, and what
//! it is compared with leaves room; memory tells of tables that are copied whole.

mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::counting::{Counting, alone, live_bytes, taken};
use common::{assert_empty, below, blocks, names, query, worker};
use kvradix::{Index, Matches};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Removals apply in the call.
fn index() -> Index {
    Index::builder().drain_threads(0).build()
}

/// By how much one event may change what is allocated: the tables of one shard
/// of the lookup and of a child table have less.
const EVENT_BYTES: isize = 512 << 10;

/// Fails if a worker's nodes or names are in one table each: 2 MiB then are
/// made in one event, and a million children take 20, and as many milliseconds.
#[test]
fn no_event_on_a_node_with_many_children_makes_a_large_table() {
    const CHILDREN: u64 = if cfg!(debug_assertions) { 120_000 } else { 250_000 };
    let _alone = alone();
    let index = index();
    let check = |event: &dyn Fn()| {
        let before = live_bytes();
        event();
        let made = live_bytes() - before;
        assert!(made.abs() < EVENT_BYTES, "{made} bytes in one event");
    };
    // The second worker has names of its own.
    let name = |who: u64, child: u64| who << 32 | child;
    for who in [0, 1] {
        index.store(worker(who), None, &blocks([(name(who, 0), 0)])).unwrap();
        for child in 1..CHILDREN {
            let block = blocks([(name(who, child), child)]);
            check(&|| index.store(worker(who), below(name(who, 0)), &block).unwrap());
        }
    }
    index.check();
    let mut matches = Matches::new();
    index.matches_into(&query([0, CHILDREN - 1]), &mut matches);
    assert_eq!(matches.iter().filter(|found| found.depth == 2).count(), 2);
    for who in [0, 1] {
        for child in (0..CHILDREN).rev() {
            let name = names([name(who, child)]);
            check(&|| index.remove(worker(who), &name));
        }
    }
    assert_empty(&index);
}

/// The least time of a call.
fn least(rounds: usize, mut call: impl FnMut() -> Duration) -> Duration {
    (0..rounds).map(|_| call()).min().expect("a round at least")
}

/// Fails if a query looks at every worker there is.
#[test]
fn a_query_does_not_look_at_the_fleet() {
    let _alone = alone();
    let time = |fleet: u64| {
        let index = index();
        let chain: Vec<(u64, u64)> = (1..=64).map(|at| (at, at)).collect();
        for who in 0..fleet {
            index.store(worker(who), None, &blocks([(1_000 + who, 1_000 + who)])).unwrap();
        }
        // Eight holders, the last one of the whole fleet among them.
        for who in (fleet - 8)..fleet {
            index.store(worker(who), None, &blocks(chain.iter().copied())).unwrap();
        }
        let (prompt, mut matches) = (query(1..=64), Matches::new());
        least(50, || {
            let started = Instant::now();
            for _ in 0..100 {
                index.matches_into(black_box(&prompt), &mut matches);
            }
            assert_eq!(matches.len(), 8);
            started.elapsed()
        })
    };
    let (small, large) = (time(8), time(8_192));
    assert!(large < small * 4, "{small:?} with 8 workers, {large:?} with 8,192");
}

/// Seconds that this thread has run, where the system tells; else of the clock
/// on the wall. As fine as the scheduler's tick.
fn used(since: Instant) -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.map_or_else(|| since.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}

/// A block stored and evicted, from the end up or in a random order: the mean
/// of many chains.
fn evicted(length: u64, random: bool) -> f64 {
    let rounds = BLOCKS / length;
    let index = index();
    let mut rng = SmallRng::seed_from_u64(length);
    let chain = blocks((0..length).map(|at| (at, at)));
    let mut names = names((0..length).rev());
    if random {
        names.shuffle(&mut rng);
    }
    let clock = Instant::now();
    let before = used(clock);
    for _ in 0..rounds {
        index.store(worker(0), None, &chain).unwrap();
        for name in &names {
            index.remove(worker(0), std::slice::from_ref(name));
        }
    }
    let used = used(clock) - before;
    assert_empty(&index);
    used / (rounds * length) as f64
}

/// Blocks that are evicted of each length.
const BLOCKS: u64 = if cfg!(debug_assertions) { 40_000 } else { 400_000 };

/// Fails if a removal costs as much as the chain is long, or one in its middle
/// far more than one at its end.
#[test]
fn a_long_chain_is_evicted_block_by_block_in_linear_time() {
    let _alone = alone();
    let (short, long) = (evicted(1_250, false), evicted(20_000, false));
    assert!(long < short * 4.0, "{short} s a block of 1,250, {long} of 20,000");
    let (tail, random) = (evicted(10_000, false), evicted(10_000, true));
    assert!(random < tail * 3.0, "{random} s a block in random order, {tail} from the end up");
    println!("ns a block: {:?}", [short, long, tail, random].map(|s| (s * 1e9).round()));
}

/// Fails if each name of a removal has a view made for it: with many holders of
/// one run a view is long.
#[test]
fn chains_that_lose_their_ends_by_turns_are_published_once_for_all() {
    const CHAIN: u64 = 256;
    let _alone = alone();
    let index = index();
    let chain =
        |which: u64, len: u64| blocks((0..len).map(|at| (which << 32 | at, which << 32 | at)));
    for which in [1, 2] {
        index.store(worker(0), None, &chain(which, CHAIN)).unwrap();
        for other in 1..CHAIN {
            index.store(worker(other), None, &chain(which, other)).unwrap();
        }
    }
    for together in [1, 2, 3] {
        let tails = |which: u64| {
            let names: Vec<_> =
                (0..CHAIN / 4).map(move |at| which << 32 | (CHAIN - 1 - at)).collect();
            names.chunks(together).map(<[u64]>::to_vec).collect::<Vec<_>>()
        };
        let by_turns: Vec<u64> =
            tails(1).into_iter().zip(tails(2)).flat_map(|(a, b)| [a, b].concat()).collect();
        let before = taken();
        index.remove(worker(0), &names(by_turns));
        let made = taken() - before;
        assert!(made < 48, "{made} allocations, {together} at a time");
        assert_eq!(index.held(worker(0)) as u64, 2 * CHAIN - CHAIN / 2);
        for which in [1, 2] {
            index.store(worker(0), None, &chain(which, CHAIN)).unwrap();
        }
    }
}

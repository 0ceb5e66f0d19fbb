//! Memory is bounded by what is held: the formulas of ARCHITECTURE.md's
//! *Memory*, under steady churn of every kind.
//!
//! By themselves the tests take seconds. `KVRADIX_BOUNDS=50` in the
//! environment makes the churn 50 times as long; each test prints its figures
//! (`--nocapture`).

mod common;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::compare::SETUPS;
use common::counting::{Counting, alone, live_bytes};
use common::stream::{Eviction, Mode, Naming, Op, stream};
use common::{below, block, blocks, depth, names, query, worker};
use kvradix::{Index, Matches, Stats};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How much longer than by itself the churn goes on.
fn longer(cycles: u64) -> u64 {
    let given = std::env::var("KVRADIX_BOUNDS").ok();
    cycles * given.map_or(1, |given| given.parse().expect("KVRADIX_BOUNDS is a number"))
}

/// Tables of an index that has held much and holds nothing.
const TABLES: u64 = 704 << 10;
/// What the collector keeps for each thread that has used an index.
const THREAD: u64 = 136 << 10;
const WORKER: u64 = 12 << 10;
const NODE: u64 = 2_048;
const TREE_BLOCK: u64 = 64;
const ENTRY: u64 = 160;
const HELD_BLOCK: u64 = 420;
/// A worker's mask of a run in which it has a hole, or the run's of flagged names.
const HOLED: u64 = 640;

/// A name that waits for a drain.
const NAME: u64 = 8;
/// What a queue of 32,768 names has beside them: room for 512 more, and a list.
const QUEUE: u64 = 8 << 10;

/// Held blocks from which on bytes and nodes are told for each.
const MANY: u64 = 10_000;

/// The most bytes that may be live while `stats` tells what is held, `threads`
/// have used the index and workers have holes in `holed` runs, summed over
/// the workers.
fn allowed(stats: &Stats, threads: u64, holed: u64) -> u64 {
    TABLES
        + THREAD * threads
        + WORKER * stats.workers
        + NODE * stats.nodes
        + TREE_BLOCK * stats.tree_blocks
        + ENTRY * stats.lookup_entries
        + HELD_BLOCK * stats.held_blocks
        + HOLED * holed
        + stats.retired_bytes
}

/// What churn is looked at through.
struct Watch {
    title: &'static str,
    index: Index,
    /// Live bytes before the index was made.
    before: isize,
    /// Threads that use the index beside its own two and this one.
    threads: u64,
    /// Live bytes and figures each time they were looked at.
    seen: Vec<(u64, Stats)>,
}

impl Watch {
    fn new(title: &'static str) -> Self {
        Self::of(title, 0, Index::new)
    }

    fn of(title: &'static str, threads: u64, make: impl FnOnce() -> Index) -> Self {
        let before = live_bytes();
        Self { title, index: make(), before, threads, seen: Vec::new() }
    }

    /// Live bytes of the index, without those of the figures seen, once nothing
    /// is on its way, the collector's own queue worked off included: a flush
    /// takes a few of its nodes.
    fn live(&self) -> u64 {
        for _ in 0..200 {
            self.index.flush();
            if self.index.stats().retired_bytes == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.index.stats().retired_bytes, 0, "{}", self.title);
        // After a thread was kept from its turn with a pin there are many.
        let mut before = isize::MAX;
        while live_bytes() < before {
            before = live_bytes();
            (0..16).for_each(|_| self.index.flush());
        }
        let seen = self.seen.capacity() * size_of::<(u64, Stats)>();
        (live_bytes() - self.before - seen as isize).max(0) as u64
    }

    /// The same once it is at most `allowed`, or after a while: what a thread
    /// of the pool still has in hand it gives back when it gets its turn.
    fn live_within(&self, allowed: u64) -> u64 {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let live = self.live();
            if live <= allowed || Instant::now() > deadline {
                return live;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Looks at the figures, asserts the formula, and returns them.
    fn look(&mut self, holed: u64) -> Stats {
        self.index.flush();
        let stats = self.index.stats();
        let allowed = allowed(&stats, self.threads + 3, holed);
        let live = self.live_within(allowed);
        assert!(live <= allowed, "{}: {live} bytes, {allowed} allowed: {stats:?}", self.title);
        self.seen.push((live, stats));
        stats
    }

    /// What all looks at many held blocks have in common: at most so many bytes
    /// for each, tables and all, and so many nodes.
    fn stays_within(&self, bytes_a_held_block: f64, nodes_a_held_block: f64) {
        let many = self.seen.iter().filter(|(_, stats)| stats.held_blocks >= MANY);
        let each = |of: fn(&(u64, Stats)) -> u64| {
            let each = many.clone().map(|seen| of(seen) as f64 / seen.1.held_blocks as f64);
            each.fold(0.0, f64::max)
        };
        let range = |of: fn(&(u64, Stats)) -> u64| {
            let values = self.seen.iter().map(of);
            (values.clone().min().unwrap_or(0), values.max().unwrap_or(0))
        };
        let (live, nodes) = (each(|(live, _)| *live), each(|(_, stats)| stats.nodes));
        println!(
            "{}: {} looks; held {:?}, in the tree {:?}, nodes {:?}, live bytes {:?}; a held block at \
             most {live:.1} bytes, {nodes:.4} nodes",
            self.title,
            self.seen.len(),
            range(|(_, stats)| stats.held_blocks),
            range(|(_, stats)| stats.tree_blocks),
            range(|(_, stats)| stats.nodes),
            range(|(live, _)| *live),
        );
        assert!(live <= bytes_a_held_block, "{}: {live} bytes a held block", self.title);
        assert!(nodes <= nodes_a_held_block, "{}: {nodes} nodes a held block", self.title);
    }

    /// That the second half of the looks saw no more than the first, but for a
    /// tenth, what the collector keeps, and one doubling of each hash table: one
    /// that is more than half full grows when names have come and gone for long.
    fn has_not_grown(&self) {
        let (first, second) = self.seen.split_at(self.seen.len() / 2);
        let most = |seen: &[(u64, Stats)], of: fn(&(u64, Stats)) -> u64| {
            seen.iter().map(of).max().expect("looks")
        };
        let doubled = most(first, |(_, stats)| 40 * stats.lookup_entries + 20 * stats.nodes);
        for (what, slack, of) in [
            ("live bytes", THREAD * 3 + doubled, (|(live, _)| *live) as fn(&(u64, Stats)) -> u64),
            ("nodes", 8, |(_, stats)| stats.nodes),
            ("blocks in the tree", 64, |(_, stats)| stats.tree_blocks),
        ] {
            let (early, late) = (most(first, of), most(second, of));
            assert!(
                late <= early + early / 10 + slack,
                "{}: {what} {early}, then {late}",
                self.title
            );
        }
    }

    /// Everybody goes; what is left.
    fn end(mut self) {
        for known in self.index.workers() {
            self.index.remove_worker(known);
        }
        let fixed = TABLES + THREAD * (self.threads + 3);
        let live = self.live_within(fixed);
        println!("{}: {live} bytes at the end", self.title);
        assert!(live <= fixed, "{}: {live} bytes are left, {fixed} allowed", self.title);
        let stats = self.look(0);
        let left = [stats.nodes, stats.tree_blocks, stats.held_blocks, stats.lookup_entries];
        assert_eq!(left, [0; 4], "{}", self.title);
        self.index.check();
    }
}

/// Suffixes that were never seen before come and go below prompts that stay;
/// a window of them is held at any time.
fn unique_suffixes(title: &'static str, prompts: u64, window: usize, cycles: u64) {
    const PROMPT: u64 = 16;
    const SUFFIX: u64 = 8;
    let mut watch = Watch::new(title);
    let prompt = |at: u64| at * PROMPT..(at + 1) * PROMPT;
    for at in 0..prompts {
        watch.index.store(worker(1), None, &blocks(prompt(at).map(|n| (n, n)))).unwrap();
    }
    let mut unused = prompts * PROMPT;
    let mut held = VecDeque::new();
    for cycle in 0..cycles {
        let suffix = unused..unused + SUFFIX;
        unused += SUFFIX;
        let parent = below(prompt(cycle % prompts).end - 1);
        watch.index.store(worker(1), parent, &blocks(suffix.clone().map(|n| (n, n)))).unwrap();
        held.push_back(suffix);
        if held.len() > window {
            watch.index.remove(worker(1), &names(held.pop_front().unwrap().rev()));
        }
        if cycle > window as u64 && cycle % (cycles / 16) == 0 {
            let stats = watch.look(0);
            assert!(stats.nodes <= prompts + window as u64, "{stats:?}");
            let blocks = prompts * PROMPT + window as u64 * SUFFIX;
            assert_eq!((stats.tree_blocks, stats.held_blocks), (blocks, blocks));
        }
    }
    watch.has_not_grown();
    let blocks = prompts * PROMPT + window as u64 * SUFFIX;
    watch.stays_within(120.0, (prompts + window as u64) as f64 / blocks as f64);
    watch.end();
}

#[test]
fn unique_suffixes_under_one_prompt_take_what_is_held() {
    let _alone = alone();
    unique_suffixes("unique suffixes, one prompt", 1, 4_000, longer(60_000));
}

#[test]
fn unique_suffixes_under_ten_thousand_prompts_take_what_is_held() {
    let _alone = alone();
    unique_suffixes("unique suffixes, 10,000 prompts", 10_000, 4_000, longer(60_000));
}

/// Chains of 128 blocks that branch at each position, held by two workers with
/// names of their own; every block is evicted by itself, in random order.
#[test]
fn branch_points_everywhere_take_what_is_held() {
    const CHAINS: u64 = 16;
    const CHAIN: u64 = 128;
    const BRANCH: u64 = 3;
    let _alone = alone();
    let mut rng = SmallRng::seed_from_u64(1);
    let mut watch = Watch::new("branch points everywhere");
    let (rounds, mut unused) = (longer(6), CHAINS * CHAIN);
    for round in 0..rounds {
        let mut held = Vec::new();
        for (chain, who) in (0..CHAINS).flat_map(|chain| [(chain, 1), (chain, 2)]) {
            let named = |n: u64| (n << 8 | who, n);
            let mut store = |parent: Option<u64>, contents: std::ops::Range<u64>| {
                let stored = blocks(contents.map(named));
                held.extend(stored.iter().map(|block| (worker(who), block.sequence)));
                let parent = parent.and_then(|parent| below(named(parent).0));
                watch.index.store(worker(who), parent, &stored).unwrap();
            };
            let chain = chain * CHAIN..(chain + 1) * CHAIN;
            store(None, chain.clone());
            for at in chain {
                store(Some(at), unused..unused + BRANCH);
                unused += BRANCH;
            }
        }
        held.shuffle(&mut rng);
        let mut left = held.len() as u64;
        while let Some((who, name)) = held.pop() {
            if left.is_multiple_of(1_024) {
                let stats = watch.look(2 * CHAINS * (CHAIN + 1));
                // A run for each branch that is left and for each chain; of
                // blocks that nobody holds what leads to those below.
                assert!(stats.nodes <= CHAINS * (2 * CHAIN + 1), "round {round}: {stats:?}");
                let above = CHAINS * CHAIN * (1 + 2 * BRANCH);
                assert!(stats.tree_blocks <= above.min(left * CHAIN), "{stats:?}");
            }
            watch.index.remove(who, &[name]);
            left -= 1;
        }
        let stats = watch.look(0);
        assert_eq!((stats.nodes, stats.tree_blocks), (0, 0), "round {round}");
    }
    watch.has_not_grown();
    watch.stays_within(400.0, 0.4);
    watch.end();
}

/// A hundred thousand workers, a few dozen at a time.
#[test]
fn workers_that_join_and_leave_take_what_is_held() {
    let _alone = alone();
    let mut watch = Watch::new("workers that join and leave");
    let mut here = VecDeque::new();
    let joins = longer(100_000);
    for id in 0..joins {
        // Few removals wait for the alarm, many have a task sent for them.
        let own = 1_000 + id * 128..1_000 + id * 128 + if id % 4 == 0 { 96 } else { 4 };
        let all = (0..8).chain(own.clone()).map(|n| (n, n));
        watch.index.store(worker(id), None, &blocks(all)).unwrap();
        watch.index.remove(worker(id), &names(own.skip(1)));
        here.push_back(id);
        if here.len() > 40 {
            watch.index.remove_worker(worker(here.pop_front().unwrap()));
        }
        if id % (joins / 16) == joins / 16 - 1 {
            let stats = watch.look(0);
            assert_eq!((stats.workers, stats.held_blocks), (40, 40 * 9), "{stats:?}");
            assert_eq!(stats.nodes, 41);
        }
    }
    watch.has_not_grown();
    watch.stays_within(0.0, 0.0);
    watch.end();
}

/// A fleet that grows large once and shrinks again: the few that stay, who
/// came last, keep no room for those who left.
#[test]
fn a_fleet_that_shrinks_keeps_no_room_for_those_who_left() {
    const FLEET: u64 = 5_000;
    let _alone = alone();
    let mut rng = SmallRng::seed_from_u64(2);
    let mut watch = Watch::new("a fleet that shrinks");
    for round in 0..longer(2) {
        let mut all: Vec<u64> = (round * FLEET..(round + 1) * FLEET).collect();
        for id in &all {
            watch.index.store(worker(*id), None, &[block(1, 1)]).unwrap();
        }
        watch.look(0);
        all.shuffle(&mut rng);
        for id in all.drain(4..) {
            watch.index.remove_worker(worker(id));
        }
        watch.look(0);
        // Those who stay come and go, one at a time.
        for id in all.iter().flat_map(|id| [*id; 3]) {
            watch.index.remove_worker(worker(id));
            watch.index.flush();
            watch.index.store(worker(id), None, &[block(1, 1)]).unwrap();
        }
        let stats = watch.look(0);
        assert_eq!(stats.workers, 4);
        let live = watch.live_within(640 << 10);
        assert!(live < 640 << 10, "{live} bytes for 4 workers of a block");
        all.iter().for_each(|id| watch.index.remove_worker(worker(*id)));
    }
    watch.end();
}

/// Hubs, the root's and others, whose children come by the thousand and go
/// again, to few or to none.
#[test]
fn hubs_that_grow_and_shrink_give_memory_back() {
    const CHILDREN: u64 = 20_000;
    let _alone = alone();
    let mut rng = SmallRng::seed_from_u64(3);
    let mut watch = Watch::new("hubs that grow and shrink");
    let prompt = blocks((0..16).map(|n| (n, n)));
    let mut unused = 1_000;
    for _ in 0..longer(3) {
        // Below the root; below a run's end and its middle.
        for parent in [None, below(15), below(7)] {
            watch.index.store(worker(1), None, &prompt).unwrap();
            let mut children: Vec<u64> = (unused..unused + CHILDREN).collect();
            unused += CHILDREN;
            for child in &children {
                watch.index.store(worker(1), parent, &[block(*child, *child)]).unwrap();
            }
            let full = watch.look(0);
            // The first one below a run's end goes on in the run.
            assert!(full.nodes >= CHILDREN);
            let full = watch.live();
            children.shuffle(&mut rng);
            // The tables go a shard at a time: halfway down some have gone.
            let mut before = full;
            for part in [4, 32, 256, 2_048] {
                let keep = CHILDREN as usize / part;
                watch.index.remove(worker(1), &names(children.drain(keep..)));
                let stats = watch.look(0);
                assert!(stats.nodes <= keep as u64 + 1);
                let live = watch.live_within(before - 1);
                assert!(live < before, "{live} bytes for {keep} children, {before} for more");
                before = live;
            }
            let live = watch.live_within(full / 7);
            assert!(live <= full / 7, "{live} bytes of {full} for few children");
            watch.index.clear(worker(1));
            watch.look(0);
        }
    }
    watch.stays_within(400.0, 1.0);
    watch.end();
}

/// Workers that open holes anywhere in long runs, and close them.
#[test]
fn holes_that_open_and_close_take_what_is_held() {
    const RUN: u64 = 4_096;
    const WORKERS: u64 = 16;
    let _alone = alone();
    let mut rng = SmallRng::seed_from_u64(4);
    let mut watch = Watch::new("holes that open and close");
    let run = blocks((0..RUN).map(|n| (n, n)));
    for who in 0..WORKERS {
        watch.index.store(worker(who), None, &run).unwrap();
    }
    let rounds = longer(60);
    for round in 0..rounds {
        for who in 0..WORKERS {
            let mut holes: Vec<u64> = (0..64).map(|_| rng.random_range(1..RUN)).collect();
            holes.sort_unstable();
            holes.dedup();
            watch.index.remove(worker(who), &names(holes.iter().copied()));
            if round % 2 == 0 {
                // Some close one by one, some all at once.
                for hole in holes {
                    // Refused where the block above is a hole too.
                    let _ = watch.index.store(worker(who), below(hole - 1), &[block(hole, hole)]);
                    if rng.random_ratio(1, 8) {
                        break;
                    }
                }
                watch.index.store(worker(who), None, &run).unwrap();
            }
        }
        let stats = watch.look(WORKERS);
        assert_eq!((stats.nodes, stats.tree_blocks), (1, RUN), "round {round}");
        assert!(stats.held_blocks >= WORKERS * RUN / 2, "{stats:?}");
    }
    watch.has_not_grown();
    watch.stays_within(10.0, 0.001);
    watch.end();
}

/// A worker with names of its own, which come and go for long before most of
/// them leave: what is left of the tables is worth what is left of the names,
/// and is told. Fails if a table is taken to be as large as it says: room that
/// removed entries have left behind is not in its capacity.
#[test]
fn names_that_came_and_went_for_long_leave_no_room_behind() {
    const CHAIN: u64 = 4_000;
    const CHAINS: u64 = 50;
    let _alone = alone();
    let mut watch = Watch::new("names that come and go");
    let mut unused = 1 << 32;
    for round in 0..longer(3) {
        // Named by one who then leaves; the other keeps names of its own.
        let mut held = VecDeque::new();
        for who in [1, 2] {
            for chain in 0..CHAINS {
                let named = (0..CHAIN).map(|at| (unused + at, chain * CHAIN + at));
                watch.index.store(worker(who), None, &blocks(named)).unwrap();
                held.push_back((chain, unused));
                unused += CHAIN;
            }
        }
        let mut held = held.split_off(CHAINS as usize);
        for _ in 0..CHAINS * (round + 1) / 4 {
            let (chain, first) = held.pop_front().unwrap();
            watch.index.remove(worker(2), &names((first..first + CHAIN).rev()));
            let named = (0..CHAIN).map(|at| (unused + at, chain * CHAIN + at));
            watch.index.store(worker(2), None, &blocks(named)).unwrap();
            held.push_back((chain, unused));
            unused += CHAIN;
        }
        watch.index.remove_worker(worker(1));
        watch.look(0);
        while let Some((_, first)) = held.pop_front() {
            // In parts, so that the fewest that a table is kept for are seen.
            for part in [3_000, 2_000, 1_000, 0] {
                watch.index.remove(worker(2), &names((first + part..first + part + 1_000).rev()));
                if held.len() < 8 {
                    let told = watch.look(0).memory.total();
                    let live = watch.live_within(told + TABLES + 3 * THREAD);
                    assert!(live <= told + TABLES + 3 * THREAD, "{live} bytes, {told} told");
                    watch.index.check();
                }
            }
        }
    }
    watch.end();
}

/// Eight workers store the same chains in small batches that interleave, and
/// evict and store their tails again.
#[test]
fn interleaved_batches_do_not_fragment() {
    const CHAINS: u64 = 16;
    const CHAIN: u64 = 512;
    const WORKERS: u64 = 8;
    const BATCH: u64 = 8;
    /// Runs that a chain may lie in: one, and one more for each 33 blocks, the
    /// fewest that a run has when its cut tail goes on elsewhere.
    const RUNS: u64 = 1 + CHAIN / 33;
    let _alone = alone();
    let mut rng = SmallRng::seed_from_u64(5);
    let mut watch = Watch::new("interleaved batches");
    let named = |chain: u64, at: u64| (chain << 32 | at, chain << 32 | at);
    let mut lengths = vec![0; (CHAINS * WORKERS) as usize];
    let store = |index: &Index, lengths: &mut [u64], turn: usize| {
        let (who, chain) = (turn as u64 % WORKERS, turn as u64 / WORKERS);
        let from = lengths[turn];
        if from == CHAIN {
            return;
        }
        let parent = from.checked_sub(1).and_then(|above| below(named(chain, above).0));
        let batch = blocks((from..from + BATCH).map(|at| named(chain, at)));
        index.store(worker(who), parent, &batch).unwrap();
        lengths[turn] += BATCH;
    };
    // First in turns, all chains at once: each lies in one run.
    for _ in 0..CHAIN / BATCH {
        let mut turns: Vec<usize> = (0..lengths.len()).collect();
        turns.shuffle(&mut rng);
        for turn in turns {
            store(&watch.index, &mut lengths, turn);
        }
    }
    let stats = watch.look(0);
    assert_eq!((stats.nodes, stats.tree_blocks), (CHAINS, CHAINS * CHAIN), "one run a chain");
    // Then tails go and come back.
    for _ in 0..longer(40) {
        for _ in 0..2_000 {
            let turn = rng.random_range(0..lengths.len());
            let (who, chain) = (turn as u64 % WORKERS, turn as u64 / WORKERS);
            if rng.random_ratio(1, 16) {
                let keep = rng.random_range(0..=lengths[turn] / BATCH) * BATCH;
                let tail = (keep..lengths[turn]).rev().map(|at| named(chain, at).0);
                watch.index.remove(worker(who), &names(tail));
                lengths[turn] = keep;
            } else {
                store(&watch.index, &mut lengths, turn);
            }
        }
        let stats = watch.look(0);
        assert!(stats.nodes <= CHAINS * RUNS, "{stats:?}");
    }
    let contents = |chain, to| (0..to).map(|at| named(chain, at).1).collect::<Vec<_>>();
    for (turn, length) in lengths.iter().enumerate() {
        let (who, chain) = (turn as u64 % WORKERS, turn as u64 / WORKERS);
        assert_eq!(u64::from(depth(&watch.index, worker(who), &contents(chain, CHAIN))), *length);
    }
    watch.has_not_grown();
    watch.stays_within(40.0, 0.02);
    watch.end();
}

/// Live bytes once the threads that were just started have begun: for a while
/// nothing takes or gives memory.
fn live_bytes_at_rest() -> isize {
    loop {
        let before = live_bytes();
        std::thread::sleep(Duration::from_millis(50));
        if live_bytes() == before {
            return before;
        }
    }
}

/// However many come together.
#[test]
fn a_name_that_waits_takes_8_bytes() {
    let _alone = alone();
    for together in [1, 2, 8, 512] {
        const WAITING: u64 = 32_768;
        let builder = Index::builder().drain_threads(1).drain_threshold(1_000_000);
        let index = builder.removal_delay(Duration::from_secs(3_600)).build();
        index.store(worker(1), None, &blocks([(1, 1)])).unwrap();
        // The alarm's thread and the list of lanes are there.
        index.remove(worker(1), &names([1]));
        let before = live_bytes_at_rest();
        for first in (0..WAITING).step_by(together) {
            index.remove(worker(1), &names(first..first + together as u64));
        }
        assert_eq!(index.stats().pending_removals, WAITING + 1);
        let taken = live_bytes() - before;
        let each = taken as f64 / WAITING as f64;
        println!("{together} names a removal: {each:.1} bytes a name that waits");
        let (least, most) = ((NAME * WAITING) as isize, (NAME * WAITING + QUEUE) as isize);
        assert!((least..=most).contains(&taken), "{taken} bytes of {most}");
    }
}

/// Sixteen readers and sixteen writers, whatever the number of cores: what is
/// retired stays within its limit, what is live within the formula.
#[test]
fn many_readers_and_writers_keep_retired_memory_within_its_limit() {
    const THREADS: u64 = 16;
    /// Two mebibytes above which writers wait, and what they retire all the
    /// same while the thread of a reader that holds a pin is stopped.
    const RETIRED: u64 = 8 << 20;
    let _alone = alone();
    let index = || Index::builder().drain_threads(2).build();
    let mut watch = Watch::of("16 readers and 16 writers", 2 * THREADS, index);
    let (most, most_live) = (AtomicU64::new(0), AtomicU64::new(0));
    let before = watch.before;
    let cycles = longer(4_000).min(40_000);
    let done = AtomicBool::new(false);
    let index = &watch.index;
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut matches = Matches::new();
                let prompt = query(0..24);
                while !done.load(Ordering::Relaxed) {
                    index.matches_into(&prompt, &mut matches);
                }
            });
        }
        let writers: Vec<_> = (0..THREADS)
            .map(|who| {
                let (most, most_live) = (&most, &most_live);
                scope.spawn(move || {
                    let own = worker(who);
                    index.store(own, None, &blocks((0..16).map(|n| (n, n)))).unwrap();
                    for cycle in 0..cycles {
                        let first = (who << 40) + cycle * 8 + 1_000;
                        let suffix = blocks((first..first + 8).map(|n| (n, n)));
                        index.store(own, below(15), &suffix).unwrap();
                        index.remove(own, &names((first..first + 8).rev()));
                        if cycle % 16 == 0 {
                            most.fetch_max(index.stats().retired_bytes, Ordering::Relaxed);
                            let live = (live_bytes() - before).max(0) as u64;
                            most_live.fetch_max(live, Ordering::Relaxed);
                        }
                        if cycle % 512 == 0 {
                            index.remove_worker(own);
                            index.store(own, None, &blocks((0..16).map(|n| (n, n)))).unwrap();
                        }
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    let (most, most_live) = (most.into_inner(), most_live.into_inner());
    println!("16 readers and 16 writers: retired at most {most} bytes, live {most_live}");
    assert!(most <= RETIRED, "{most} bytes retired");
    let stats = watch.look(0);
    let fixed = allowed(&stats, 2 * THREADS + 4, 0);
    // At most 65,536 names of a worker wait.
    assert!(
        most_live <= fixed + RETIRED + THREADS * (65_536 * NAME + QUEUE),
        "{most_live} bytes live"
    );
    watch.end();
}

/// Random streams of every kind, each of which ends with nobody known.
#[test]
fn random_streams_that_end_with_nothing_leave_no_byte_behind() {
    let _alone = alone();
    for setup in &SETUPS {
        let mut watch = Watch::of(setup.name, 1, setup.build);
        let mut seed = 0;
        let mut first = 0;
        for round in 0..6 {
            for _ in 0..longer(3) {
                for naming in
                    [Naming::Shared, Naming::PerWorker, Naming::TwoShared, Naming::Clashing]
                {
                    for eviction in [Eviction::TailFirst, Eviction::AnyBlock] {
                        seed += 1;
                        let mode = Mode { naming, eviction, moves: 8, ..Mode::BASE };
                        run(&watch.index, &stream(mode, seed, 60));
                    }
                }
            }
            let stats = watch.look(0);
            let left = [stats.nodes, stats.tree_blocks, stats.held_blocks, stats.lookup_entries];
            assert_eq!(left, [0; 4], "{}, seed {seed}", setup.name);
            let live = watch.live();
            if round == 2 {
                first = live;
            }
            // What the collector's queue holds goes up and down by its nodes.
            assert!(round < 3 || live <= first + THREAD, "{}: {first}, then {live}", setup.name);
        }
        watch.end();
    }
}

fn run(index: &Index, ops: &[Op]) {
    for op in ops {
        match op {
            Op::Store { worker, parent, blocks } => _ = index.store(*worker, *parent, blocks),
            Op::Remove { worker, names } => index.remove(*worker, names),
            Op::Clear { worker } => index.clear(*worker),
            Op::Leave { worker } => index.remove_worker(*worker),
            Op::LeaveRanks { id } => index.remove_ranks(*id),
            Op::Apply { events } => drop(index.apply_all(events)),
            _ => {}
        }
    }
    for known in index.workers() {
        index.remove_worker(known);
    }
}

//! One block with up to a million children: what one more costs, and what a
//! look at one does.
//!
//! One worker stores children of one block each, one an event, below the root
//! (`root`) or below a chain of 8 blocks (`node`). Whenever there are 1,000,
//! 10,000, ... of them, it stops and 20,000 queries ask for random ones. When
//! all are there it removes every child, in the order in which they came.
//!
//! Every store and every removal is timed by the thread's own processor
//! clock, which is asked once between two operations, so that nothing goes
//! unseen; what asking it costs, a few hundred nanoseconds, is measured before
//! and taken off. That clock stands still while other threads run, but goes on
//! through the kernel's work for this one: page faults and interrupts.
//!
//! - `insert`: the median of the last stores before the size, at most 10,000;
//! - `insert.mean`: the mean of all since the size before, so with whatever
//!   tables had to grow;
//! - `insert.longest`, `remove.longest`: the longest one of those;
//! - `find`: the median of the queries, by the clock on the wall, which costs
//!   less; `find.longest`: of as many again, by the processor clock.
//!
//! The concurrent tree applies its events on other threads, so only its
//! queries are comparable; it is a queue's costs that its stores show here.
//! kvradix queues removals too, and applies some of them in a later call.

use std::hint::black_box;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::metric::{Metrics, Unit};
use crate::peer::Peer;
use crate::samples::{Clock, Samples};
use crate::stopwatch::{thread_clock, thread_nanoseconds};

const CHAIN_BLOCKS: u64 = 8;
/// Stores before a size that tell its median.
const LATEST: u64 = 10_000;
const FINDS: u64 = 20_000;
const SEED: u64 = 3;

#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Settings {
    /// Numbers of children to stop at, in ascending order.
    pub sizes: Vec<u64>,
}

/// How long operations took, by the thread's clock.
#[derive(Default)]
struct Timed {
    sum: u64,
    longest: u64,
    count: u64,
    latest: Samples,
}

/// Times one operation after the other.
struct Timer {
    last: u64,
    cost: u64,
}

impl Timer {
    fn start(cost: u64) -> Self {
        Self { last: thread_nanoseconds(), cost }
    }

    /// Since the last look.
    fn lap(&mut self) -> u64 {
        let now = thread_nanoseconds();
        let since = (now - self.last).saturating_sub(self.cost);
        self.last = now;
        since
    }
}

fn child(number: u64) -> Block {
    Block::of(1 << 32 | number)
}

pub fn run<P: Peer>(settings: &Settings) -> Metrics {
    let mut metrics = Metrics::default();
    for (place, depth) in [("root", 0), ("node", CHAIN_BLOCKS)] {
        let chain: Vec<Block> = (0..depth).map(Block::of).collect();
        measure::<P>(settings, &format!("children.{place}"), &chain, &mut metrics);
    }
    metrics
}

fn measure<P: Peer>(settings: &Settings, name: &str, chain: &[Block], metrics: &mut Metrics) {
    let cost = thread_clock().cost();
    let peer = P::new(1);
    let mut writer = peer.writer();
    if !chain.is_empty() {
        peer.store(&mut writer, 0, None, chain);
    }
    let parent = chain.last().map(|block| block.name);

    let mut there = 0;
    for &size in &settings.sizes {
        let mut timed = Timed::default();
        let mut timer = Timer::start(cost);
        for number in there..size {
            peer.store(&mut writer, 0, parent, &[child(number)]);
            timed.add(timer.lap(), number + LATEST >= size);
        }
        peer.flush();
        let name = format!("{name}.{size}");
        let median = timed.latest.quantile(0.5, Clock::PERFECT);
        metrics.add(format!("{name}.insert"), Unit::Nanoseconds, median);
        let mean = timed.sum as f64 / timed.count as f64;
        metrics.add(format!("{name}.insert.mean"), Unit::Nanoseconds, mean);
        metrics.add(format!("{name}.insert.longest"), Unit::Milliseconds, timed.longest());
        there = size;
        find(&peer, &name, chain, size, metrics);
    }

    let mut timed = Timed::default();
    let mut timer = Timer::start(cost);
    for number in 0..there {
        peer.remove(&mut writer, 0, &[child(number).name]);
        timed.add(timer.lap(), false);
    }
    peer.flush();
    let name = format!("{name}.{there}");
    metrics.add(format!("{name}.remove.longest"), Unit::Milliseconds, timed.longest());
}

fn find<P: Peer>(peer: &P, name: &str, chain: &[Block], size: u64, metrics: &mut Metrics) {
    let (clock, cost) = (Clock::of_the_wall(), thread_clock().cost());
    let mut rng = SmallRng::seed_from_u64(SEED);
    let mut reader = P::Reader::default();
    let mut locals: Vec<u64> = chain.iter().map(|block| block.local).collect();
    locals.push(0);
    let mut ask = |elapsed: &mut dyn FnMut() -> u64| {
        let asked = locals.len() as u32;
        locals[asked as usize - 1] = child(rng.random_range(0..size)).local;
        let query = P::query(&locals);
        let mut deepest = 0;
        elapsed();
        peer.matches(&mut reader, query, |worker, depth| deepest = black_box(depth + worker));
        let nanoseconds = elapsed();
        assert_eq!(deepest, asked, "the child is found");
        nanoseconds
    };

    let mut samples = Samples::default();
    let mut started = Instant::now();
    for _ in 0..FINDS {
        samples.add(ask(&mut || {
            let nanoseconds = started.elapsed().as_nanos() as u64;
            started = Instant::now();
            nanoseconds
        }));
    }
    metrics.add(format!("{name}.find"), Unit::Nanoseconds, samples.quantile(0.5, clock));

    let mut timer = Timer::start(cost);
    let longest = (0..FINDS).map(|_| ask(&mut || timer.lap())).max().unwrap_or(0);
    metrics.add(format!("{name}.find.longest"), Unit::Milliseconds, longest as f64 / 1e6);
}

impl Timed {
    fn add(&mut self, nanoseconds: u64, latest: bool) {
        self.sum += nanoseconds;
        self.longest = self.longest.max(nanoseconds);
        self.count += 1;
        if latest {
            self.latest.add(nanoseconds);
        }
    }

    /// In milliseconds.
    fn longest(&self) -> f64 {
        self.longest as f64 / 1e6
    }
}

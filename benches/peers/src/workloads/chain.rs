//! A chain of 1,250 to 20,000 blocks, evicted block by block.
//!
//! One worker stores the chain in events of 8 blocks and evicts it one block
//! an event, from the end up (`tail`) or in a random order (`random`); a flush
//! ends the eviction and is part of its time. Chains with names never seen
//! before follow until 400,000 blocks of the length were evicted each way, in
//! turns. What counts is the time a block: a cost that is linear in the length
//! keeps it level.
//!
//! - `wall`: by the clock on the wall;
//! - `cpu`: processor time of the whole process, an index's own threads
//!   included;
//! - `ratio`: random order by tail-first, by processor time.
//!
//! Indexes that are not exact when a block goes before those below it are
//! left out of the random order.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::metric::{Metrics, Unit};
use crate::peer::Peer;
use crate::stopwatch::Stopwatch;

/// Blocks of a stored event.
const BATCH: usize = 8;
const SEED: u64 = 4;

#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Settings {
    pub lengths: Vec<usize>,
    /// Blocks to evict of each length, each way.
    pub blocks: usize,
}

#[derive(Clone, Copy)]
enum Order {
    Tail,
    Random,
}

/// Seconds so far, on the wall and of the processor.
#[derive(Clone, Copy, Default)]
struct Spent(f64, f64);

struct Scene<P: Peer> {
    peer: P,
    writer: P::Writer,
    rng: SmallRng,
    unused: u64,
}

pub fn run<P: Peer>(settings: &Settings) -> Metrics {
    let mut metrics = Metrics::default();
    let peer = P::new(1);
    let writer = peer.writer();
    let mut scene = Scene { peer, writer, rng: SmallRng::seed_from_u64(SEED), unused: 0 };
    for &length in &settings.lengths {
        let chains = settings.blocks.div_ceil(length);
        let (mut tail, mut random) = (Spent::default(), Spent::default());
        // The first ones warm the tables up.
        scene.evict(length, Order::Tail, &mut Spent::default());
        for _ in 0..chains {
            scene.evict(length, Order::Tail, &mut tail);
            if P::ANY_ORDER {
                scene.evict(length, Order::Random, &mut random);
            }
        }
        let each = 1e9 / (chains * length) as f64;
        for (order, Spent(wall, used)) in [("tail", tail), ("random", random)] {
            if used > 0.0 {
                let key = format!("chain.{length}.{order}");
                metrics.add(format!("{key}.wall"), Unit::Nanoseconds, wall * each);
                metrics.add(format!("{key}.cpu"), Unit::Nanoseconds, used * each);
            }
        }
        if P::ANY_ORDER {
            metrics.add(format!("chain.{length}.ratio"), Unit::Times, random.1 / tail.1);
        }
    }
    metrics
}

impl<P: Peer> Scene<P> {
    fn evict(&mut self, length: usize, order: Order, spent: &mut Spent) {
        let chain: Vec<Block> = (self.unused..).take(length).map(Block::of).collect();
        self.unused += length as u64;
        let mut parent = None;
        for batch in chain.chunks(BATCH) {
            self.peer.store(&mut self.writer, 0, parent, batch);
            parent = batch.last().map(|block| block.name);
        }
        let mut names: Vec<u64> = chain.iter().rev().map(|block| block.name).collect();
        if let Order::Random = order {
            names.shuffle(&mut self.rng);
        }
        let watch = Stopwatch::start();
        for name in names {
            self.peer.remove(&mut self.writer, 0, &[name]);
        }
        self.peer.flush();
        let (wall, used) = watch.seconds();
        *spent = Spent(spent.0 + wall, spent.1 + used);

        let locals: Vec<u64> = chain.iter().map(|block| block.local).collect();
        let mut found = 0;
        let query = P::query(&locals);
        self.peer.matches(&mut P::Reader::default(), query, |_, _| found += 1);
        assert_eq!(found, 0, "nothing is left");
    }
}

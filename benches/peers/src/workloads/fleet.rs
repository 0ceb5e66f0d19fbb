//! A fleet fills its caches, is queried, loses workers and evicts.
//!
//! **What is held.** 256 workers hold chains until the wanted number of
//! holder-blocks (a block counts once for every worker that holds it) is
//! there. A chain is a prefix, held by all its holders, and below it a tail
//! of its own for every holder. Lengths are log-uniform, prefixes 8 to 512
//! blocks, tails 4 to 64. In the *mixed* fleet 50, 35 and 15 % of the
//! holder-blocks belong to chains with 1, 8 and 64 holders, in the *shared*
//! one 60 and 40 % to chains with 8 and 64. Holders are drawn without
//! repetition; no two chains have a block in common; all workers give a block
//! the same name. Equal seeds give equal fleets.
//!
//! **Stores.** The chains are shuffled; each worker stores those it holds in
//! that order, one after the other, in events of up to 8 blocks of one chain.
//! The workers take turns, one event each. All events lie in memory, as plain
//! blocks, before the clock starts.
//!
//! **Queries.** Random chains over the whole fleet, so that what they touch is
//! cold: a prefix and the tail of one of its holders, drawn in equal numbers
//! from the chains with 1, 8 and 64 holders and from *misses*, 64 blocks that
//! nobody holds, all in random order. A query's time includes handing out
//! every worker with its depth; making the prompt is not part of it. Every
//! answer is checked for the number of workers and the greatest depth.
//!
//! **Drops.** Eight workers, spread over the fleet, leave, each timed alone;
//! the median counts.
//!
//! **Eviction.** The other workers evict the first half of what they stored,
//! chain by chain from the tail's end up, one block an event. One half of them
//! comes worker after worker (`evict.single`: what belongs to one worker stays
//! in the processor's caches), the other half takes turns, 8 events each, as
//! engines evict that make room for their next batch (`evict.turns`). All
//! events lie in memory before the clock starts.
//!
//! Fill and eviction end with a flush, which their time includes. Live bytes
//! are what the allocator has handed out more than before the fill, after it
//! was told to trim, divided by the holder-blocks; what each index keeps for
//! its writers is part of it.

use std::hint::black_box;
use std::time::Instant;

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::memory::Memory;
use crate::metric::{Metrics, Unit};
use crate::peer::Peer;
use crate::samples::{Clock, Samples};
use crate::stopwatch::Stopwatch;

const WORKERS: u32 = 256;
const PREFIX_BLOCKS: (u32, u32) = (8, 512);
const TAIL_BLOCKS: (u32, u32) = (4, 64);
/// Blocks of a stored event, events of an eviction's turn.
const BATCH: u32 = 8;
const MISS_BLOCKS: u64 = 64;
const DROPPED: u32 = 8;
const SEED: u64 = 1;

#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Settings {
    pub variant: Variant,
    /// Holder-blocks to reach.
    pub blocks: u64,
    /// How that is written.
    pub size: String,
    /// Queries of each class.
    pub queries: usize,
}

impl Settings {
    pub fn name(&self) -> String {
        format!("fleet.{}.{}", self.variant.name(), self.size)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum, Debug)]
pub enum Variant {
    /// chains with 1, 8 and 64 holders
    Mixed,
    /// chains with 8 and 64 holders
    Shared,
}

impl Variant {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Shared => "shared",
        }
    }

    /// Classes of chains: how many holders, and their share of the
    /// holder-blocks.
    fn classes(self) -> &'static [(u32, f64)] {
        match self {
            Self::Mixed => &[(1, 0.5), (8, 0.35), (64, 0.15)],
            Self::Shared => &[(8, 0.6), (64, 0.4)],
        }
    }
}

struct Chain {
    prefix: u32,
    /// Where its holdings are.
    holdings: std::ops::Range<u32>,
}

/// What one worker holds of one chain.
struct Holding {
    chain: u32,
    worker: u32,
    tail: u32,
}

struct Fleet {
    chains: Vec<Chain>,
    holdings: Vec<Holding>,
    /// Per class the chains.
    classes: Vec<(u32, std::ops::Range<u32>)>,
    /// Per worker its holdings, in the order it stores them.
    by_worker: Vec<Vec<u32>>,
    blocks: u64,
}

impl Fleet {
    fn new(settings: &Settings) -> Self {
        let mut rng = SmallRng::seed_from_u64(SEED);
        let mut fleet = Self {
            chains: Vec::new(),
            holdings: Vec::new(),
            classes: Vec::new(),
            by_worker: vec![Vec::new(); WORKERS as usize],
            blocks: 0,
        };
        let mut workers: Vec<u32> = (0..WORKERS).collect();
        for &(holders, share) in settings.variant.classes() {
            let wanted = fleet.blocks + (settings.blocks as f64 * share) as u64;
            let first = fleet.chains.len() as u32;
            while fleet.blocks < wanted {
                let prefix = log_uniform(&mut rng, PREFIX_BLOCKS);
                let (drawn, _) = workers.partial_shuffle(&mut rng, holders as usize);
                let begin = fleet.holdings.len() as u32;
                for worker in drawn {
                    let tail = log_uniform(&mut rng, TAIL_BLOCKS);
                    let chain = fleet.chains.len() as u32;
                    fleet.holdings.push(Holding { chain, worker: *worker, tail });
                    fleet.blocks += u64::from(prefix + tail);
                }
                let holdings = begin..fleet.holdings.len() as u32;
                fleet.chains.push(Chain { prefix, holdings });
            }
            fleet.classes.push((holders, first..fleet.chains.len() as u32));
        }
        let mut order: Vec<u32> = (0..fleet.chains.len() as u32).collect();
        order.shuffle(&mut rng);
        for chain in order {
            for at in fleet.chains[chain as usize].holdings.clone() {
                let worker = fleet.holdings[at as usize].worker;
                fleet.by_worker[worker as usize].push(at);
            }
        }
        fleet
    }

    /// Blocks that the holding has, from the root.
    fn len(&self, holding: u32) -> u32 {
        let Holding { chain, tail, .. } = self.holdings[holding as usize];
        self.chains[chain as usize].prefix + tail
    }

    /// The holding's block at depth `at`.
    fn block(&self, holding: u32, at: u32) -> Block {
        let chain = self.holdings[holding as usize].chain;
        let prefix = self.chains[chain as usize].prefix;
        let key = if at < prefix {
            u64::from(chain) << 10 | u64::from(at)
        } else {
            1 << 63 | u64::from(holding) << 10 | u64::from(at - prefix)
        };
        Block::of(key)
    }

    fn stores(&self) -> Stores {
        let mut stores = Stores { events: Vec::new(), blocks: Vec::new() };
        stores.blocks.reserve_exact(self.blocks as usize);
        // Per worker which of its holdings, and how much of it is stored.
        let mut at = vec![(0_usize, 0_u32); WORKERS as usize];
        let mut busy = true;
        while busy {
            busy = false;
            for worker in 0..WORKERS {
                let (which, depth) = &mut at[worker as usize];
                let Some(&holding) = self.by_worker[worker as usize].get(*which) else { continue };
                busy = true;
                let end = self.len(holding).min(*depth + BATCH);
                let parent = depth.checked_sub(1).map(|above| self.block(holding, above).name);
                let blocks = (*depth..end).map(|at| self.block(holding, at));
                stores.blocks.extend(blocks);
                stores.events.push(Stored { worker, blocks: end - *depth, parent });
                *depth = end;
                if end == self.len(holding) {
                    (*which, *depth) = (*which + 1, 0);
                }
            }
        }
        stores
    }

    /// Evictions of these workers, one (worker, name) an event; the workers
    /// take turns of so many events.
    fn evictions(&self, workers: &[u32], turn: usize) -> Vec<(u32, u64)> {
        let mut events = Vec::new();
        // Per worker which of its holdings, and how much of it is evicted.
        let mut at = vec![(0_usize, 0_u32); WORKERS as usize];
        let mut busy = true;
        while busy {
            busy = false;
            for &worker in workers {
                let holdings = &self.by_worker[worker as usize];
                for _ in 0..turn {
                    let (which, gone) = &mut at[worker as usize];
                    let Some(&holding) = holdings[..holdings.len() / 2].get(*which) else { break };
                    busy = true;
                    let len = self.len(holding);
                    events.push((worker, self.block(holding, len - 1 - *gone).name));
                    *gone += 1;
                    if *gone == len {
                        (*which, *gone) = (*which + 1, 0);
                    }
                }
            }
        }
        events
    }

    /// The queries: which class, and which holding; the class after the last
    /// is that of misses.
    fn queries(&self, each: usize) -> Vec<(usize, u32)> {
        let mut rng = SmallRng::seed_from_u64(SEED + 1);
        let mut queries = Vec::new();
        for (class, (_, chains)) in self.classes.iter().enumerate() {
            for _ in 0..each {
                let chain = &self.chains[rng.random_range(chains.clone()) as usize];
                queries.push((class, rng.random_range(chain.holdings.clone())));
            }
        }
        queries.extend((0..each).map(|miss| (self.classes.len(), miss as u32)));
        queries.shuffle(&mut rng);
        queries
    }
}

struct Stores {
    events: Vec<Stored>,
    /// Of all events.
    blocks: Vec<Block>,
}

struct Stored {
    worker: u32,
    blocks: u32,
    parent: Option<u64>,
}

fn log_uniform(rng: &mut SmallRng, (least, most): (u32, u32)) -> u32 {
    let (low, high) = (f64::from(least).ln(), (f64::from(most) + 1.0).ln());
    (rng.random_range(low..high).exp() as u32).clamp(least, most)
}

pub fn run<P: Peer>(settings: &Settings) -> Metrics {
    let mut metrics = Metrics::default();
    let name = settings.name();
    let fleet = Fleet::new(settings);
    let stores = fleet.stores();
    let peer = P::new(WORKERS);
    let mut writer = peer.writer();

    let before = Memory::now();
    let watch = Stopwatch::start();
    let mut blocks = &stores.blocks[..];
    for event in &stores.events {
        let (stored, rest) = blocks.split_at(event.blocks as usize);
        peer.store(&mut writer, event.worker, event.parent, stored);
        blocks = rest;
    }
    peer.flush();
    watch.stop(fleet.blocks as usize, &format!("{name}.fill"), &mut metrics);
    let held = fleet.blocks as f64;
    let added = Memory::now().since(before);
    metrics.add(format!("{name}.live"), Unit::BytesPerBlock, added.live / held);
    metrics.add(format!("{name}.resident"), Unit::BytesPerBlock, added.resident / held);
    drop(stores);

    query(&peer, &fleet, settings, &mut metrics);

    let (left, stayed): (Vec<u32>, Vec<u32>) =
        (0..WORKERS).partition(|worker| worker % (WORKERS / DROPPED) == 0);
    let mut dropped = Vec::new();
    for worker in left {
        let watch = Stopwatch::start();
        peer.drop_worker(&mut writer, worker);
        dropped.push(watch.seconds());
    }
    for (key, seconds) in [("drop", |(wall, _)| wall), ("drop.cpu", |(_, used)| used)]
        as [(&str, fn((f64, f64)) -> f64); 2]
    {
        let mut seconds: Vec<f64> = dropped.iter().copied().map(seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let median = seconds[seconds.len() / 2] * 1e3;
        metrics.add(format!("{name}.{key}"), Unit::Milliseconds, median);
    }

    let (single, turns): (Vec<u32>, Vec<u32>) = stayed.iter().partition(|worker| *worker % 2 == 1);
    for (how, workers, turn) in [("single", single, usize::MAX), ("turns", turns, BATCH as usize)] {
        let evictions = fleet.evictions(&workers, turn);
        let watch = Stopwatch::start();
        for (worker, block) in &evictions {
            peer.remove(&mut writer, *worker, &[*block]);
        }
        peer.flush();
        watch.stop(evictions.len(), &format!("{name}.evict.{how}"), &mut metrics);
    }
    metrics
}

fn query<P: Peer>(peer: &P, fleet: &Fleet, settings: &Settings, metrics: &mut Metrics) {
    let name = settings.name();
    let clock = Clock::of_the_wall();
    let mut reader = P::Reader::default();
    let mut samples: Vec<Samples> = Vec::new();
    samples.resize_with(fleet.classes.len() + 1, Samples::default);
    let mut locals = Vec::new();
    for (class, holding) in fleet.queries(settings.queries) {
        locals.clear();
        let expected = match fleet.classes.get(class) {
            Some((holders, _)) => {
                let len = fleet.len(holding);
                locals.extend((0..len).map(|at| fleet.block(holding, at).local));
                (*holders, len)
            }
            None => {
                let first = 3 << 62 | u64::from(holding) << 10;
                locals.extend((first..first + MISS_BLOCKS).map(|key| Block::of(key).local));
                (0, 0)
            }
        };
        let query = P::query(&locals);
        let (mut workers, mut deepest, mut sum) = (0, 0, 0_u64);
        let started = Instant::now();
        peer.matches(&mut reader, query, |worker, depth| {
            workers += 1;
            deepest = deepest.max(depth);
            sum += u64::from(worker ^ depth);
        });
        black_box(sum);
        samples[class].add(started.elapsed().as_nanos() as u64);
        assert_eq!((workers, deepest), expected, "workers and greatest depth of an answer");
    }
    for (class, samples) in samples.iter_mut().enumerate() {
        let class = match fleet.classes.get(class) {
            Some((holders, _)) => format!("q{holders}"),
            None => "miss".to_owned(),
        };
        for (share, quantile) in [(0.5, "p50"), (0.99, "p99")] {
            let value = samples.quantile(share, clock);
            metrics.add(format!("{name}.{class}.{quantile}"), Unit::Nanoseconds, value);
        }
    }
}

//! Queries of chains with as many holders as ever, in fleets of 8 to 4,096
//! workers: what a query costs beside what it returns.
//!
//! **What is held.** Chains with 1, 8 and 64 holders, drawn without
//! repetition from all workers of the fleet: a prefix of 64 blocks that all
//! its holders have, and below it for each of them a tail of 8 blocks of its
//! own. There are as many chains of each class in every fleet, 1.2 M
//! holder-blocks with 1 holder, as many with 8, 2.4 M with 64, so that only
//! the number of workers differs. A fleet of 8 workers cannot have chains with
//! 64 holders; it has eight times as many with 8 in their place, which are
//! stored but not asked for. `ChainIndex` takes up to 1,024 workers and has no
//! larger fleet. The chains are stored in random order, holder by
//! holder, in events of 8 blocks.
//!
//! **Queries.** As in `fleet`: a prefix and one of its tails, drawn in equal
//! numbers from the chains with 1, 8 and 64 holders, in random order, each
//! timed alone, its time with the handing out of every worker, the answer
//! checked.

use std::hint::black_box;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::metric::{Metrics, Unit};
use crate::peer::Peer;
use crate::samples::{Clock, Samples};

/// Holders of a chain, and how many chains of them there are.
const CLASSES: [(u32, u32); 3] = [(1, 16_384), (8, 2_048), (64, 512)];
const PREFIX_BLOCKS: u64 = 64;
const TAIL_BLOCKS: u64 = 8;
/// Blocks of a stored event.
const BATCH: usize = 8;
const SEED: u64 = 2;

#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Settings {
    /// Workers of each fleet.
    pub fleets: Vec<u32>,
    /// Queries of each class.
    pub queries: usize,
    /// What the number of chains is divided by.
    pub smaller: u32,
}

struct Chain {
    /// `None` where nobody asks for it.
    class: Option<usize>,
    holders: Vec<u32>,
}

impl Chain {
    /// What the worker that is its `holder`-th holds of chain `number`.
    fn blocks(number: usize, holder: usize) -> impl Iterator<Item = Block> {
        let chain = (number as u64) << 16;
        let tail = chain | (holder as u64 + 1) << 8;
        let blocks = (0..PREFIX_BLOCKS).map(move |at| chain | at);
        blocks.chain((0..TAIL_BLOCKS).map(move |at| tail | at)).map(Block::of)
    }
}

fn chains(workers: u32, smaller: u32) -> Vec<Chain> {
    let mut rng = SmallRng::seed_from_u64(SEED);
    let mut all: Vec<u32> = (0..workers).collect();
    let mut chains = Vec::new();
    for (class, (holders, count)) in CLASSES.into_iter().enumerate() {
        let held_by = holders.min(workers);
        for _ in 0..count / smaller * (holders / held_by) {
            let (drawn, _) = all.partial_shuffle(&mut rng, held_by as usize);
            let class = (held_by == holders).then_some(class);
            chains.push(Chain { class, holders: drawn.to_vec() });
        }
    }
    chains.shuffle(&mut rng);
    chains
}

pub fn run<P: Peer>(settings: &Settings) -> Metrics {
    let mut metrics = Metrics::default();
    for &workers in settings.fleets.iter().filter(|workers| **workers <= P::MOST_WORKERS) {
        let chains = chains(workers, settings.smaller);
        let peer = P::new(workers);
        let mut writer = peer.writer();
        let mut blocks = Vec::new();
        for (number, chain) in chains.iter().enumerate() {
            for (holder, &worker) in chain.holders.iter().enumerate() {
                blocks.clear();
                blocks.extend(Chain::blocks(number, holder));
                let mut parent = None;
                for batch in blocks.chunks(BATCH) {
                    peer.store(&mut writer, worker, parent, batch);
                    parent = batch.last().map(|block| block.name);
                }
            }
        }
        peer.flush();
        query(&peer, workers, &chains, settings.queries, &mut metrics);
    }
    metrics
}

fn query<P: Peer>(peer: &P, workers: u32, chains: &[Chain], each: usize, metrics: &mut Metrics) {
    let clock = Clock::of_the_wall();
    let mut rng = SmallRng::seed_from_u64(SEED + 1);
    let mut queries = Vec::new();
    for class in 0..CLASSES.len() {
        let of_class = |(_, chain): &(usize, &Chain)| chain.class == Some(class);
        let numbers: Vec<usize> =
            chains.iter().enumerate().filter(of_class).map(|(number, _)| number).collect();
        for _ in 0..if numbers.is_empty() { 0 } else { each } {
            let number = numbers[rng.random_range(0..numbers.len())];
            queries.push((class, number, rng.random_range(0..chains[number].holders.len())));
        }
    }
    queries.shuffle(&mut rng);

    let mut samples: [Samples; CLASSES.len()] = Default::default();
    let (mut reader, mut locals) = (P::Reader::default(), Vec::new());
    for (class, number, holder) in queries {
        locals.clear();
        locals.extend(Chain::blocks(number, holder).map(|block| block.local));
        let query = P::query(&locals);
        let (mut found, mut deepest, mut sum) = (0, 0, 0_u64);
        let started = Instant::now();
        peer.matches(&mut reader, query, |worker, depth| {
            found += 1;
            deepest = deepest.max(depth);
            sum += u64::from(worker ^ depth);
        });
        black_box(sum);
        samples[class].add(started.elapsed().as_nanos() as u64);
        let expected = (CLASSES[class].0, (PREFIX_BLOCKS + TAIL_BLOCKS) as u32);
        assert_eq!((found, deepest), expected, "workers and greatest depth of an answer");
    }
    for ((holders, _), samples) in CLASSES.into_iter().zip(&mut samples) {
        for (share, quantile) in [(0.5, "p50"), (0.99, "p99")] {
            let key = format!("workers.{workers}.q{holders}.{quantile}");
            metrics.add(key, Unit::Nanoseconds, samples.quantile(share, clock));
        }
    }
}

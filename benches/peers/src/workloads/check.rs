//! Whether the adapters are right: not measured.
//!
//! A random stream on which every index is exact: all workers name alike, and
//! a worker removes only blocks below which it has none. 12 workers walk a
//! trie of two children a block: they store up to 12 blocks below a block they
//! hold or at the root, remove up to 6 blocks one or several an event, and now
//! and then leave and come back. After every few events the index is flushed
//! and asked 12 random prompts, and each answer, all workers and depths, is
//! compared with a model that is a set of blocks for each worker. The digest
//! of all answers is handed out too, so that indexes can be compared with each
//! other.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, bail};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::block::{Block, mix};
use crate::metric::{Metrics, Unit};
use crate::peer::Peer;

const WORKERS: u32 = 12;
const ROUNDS: usize = 3_000;
const DEPTH: usize = 40;

/// A block's place in the trie: its name, which is one of its whole path.
type Place = u64;

#[derive(Default)]
struct Worker {
    /// Places held, with the place above and how many held ones are below.
    held: HashMap<Place, (Place, u32)>,
    /// The local hashes that lead to each place.
    paths: HashMap<Place, Vec<u64>>,
}

fn below(place: Place, local: u64) -> Place {
    mix(place ^ mix(local))
}

impl Worker {
    /// A place it holds, or the root, which is 0.
    fn any(&self, rng: &mut SmallRng) -> Place {
        let mut held: Vec<Place> = self.held.keys().copied().collect();
        held.sort_unstable();
        held.push(0);
        held[rng.random_range(0..held.len())]
    }

    fn leaf(&self, rng: &mut SmallRng) -> Option<Place> {
        let leaves = self.held.iter().filter(|(_, (_, children))| *children == 0);
        let mut leaves: Vec<Place> = leaves.map(|(place, _)| *place).collect();
        leaves.sort_unstable();
        (!leaves.is_empty()).then(|| leaves[rng.random_range(0..leaves.len())])
    }

    fn add(&mut self, above: Place, local: u64) -> Block {
        let place = below(above, local);
        if self.held.insert(place, (above, 0)).is_none() {
            if let Some((_, children)) = self.held.get_mut(&above) {
                *children += 1;
            }
            let mut path = self.paths.get(&above).cloned().unwrap_or_default();
            path.push(local);
            self.paths.insert(place, path);
        }
        Block { name: place, local }
    }

    fn remove(&mut self, leaf: Place) {
        self.paths.remove(&leaf);
        if let Some((above, _)) = self.held.remove(&leaf)
            && let Some((_, children)) = self.held.get_mut(&above)
        {
            *children -= 1;
        }
    }

    fn depth(&self, prompt: &[u64]) -> u32 {
        let mut place = 0;
        let held = prompt.iter().take_while(|local| {
            place = below(place, **local);
            self.held.contains_key(&place)
        });
        held.count() as u32
    }
}

pub fn run<P: Peer>() -> Result<Metrics> {
    let mut rng = SmallRng::seed_from_u64(11);
    let peer = P::new(WORKERS);
    let mut writer = peer.writer();
    let mut reader = P::Reader::default();
    let mut model: Vec<Worker> = (0..WORKERS).map(|_| Worker::default()).collect();
    let (mut digest, mut found_in_all) = (0, 0);
    for round in 0..ROUNDS {
        for _ in 0..4 {
            let id = rng.random_range(0..WORKERS);
            let worker = &mut model[id as usize];
            match rng.random_range(0..100) {
                0 => {
                    peer.drop_worker(&mut writer, id);
                    *worker = Worker::default();
                }
                1..45 => {
                    let one_by_one = rng.random();
                    let mut names = Vec::new();
                    for _ in 0..rng.random_range(1..=6) {
                        let Some(leaf) = worker.leaf(&mut rng) else { break };
                        worker.remove(leaf);
                        names.push(leaf);
                    }
                    if one_by_one {
                        names.iter().for_each(|name| peer.remove(&mut writer, id, &[*name]));
                    } else if !names.is_empty() {
                        peer.remove(&mut writer, id, &names);
                    }
                }
                _ => {
                    // Some go below what they have, some anew from the root.
                    let parent = if rng.random() { worker.any(&mut rng) } else { 0 };
                    let depth = worker.paths.get(&parent).map_or(0, Vec::len);
                    let count = rng.random_range(1..=12).min(DEPTH.saturating_sub(depth));
                    let mut blocks = Vec::new();
                    let mut above = parent;
                    for _ in 0..count {
                        let local = local(&mut rng);
                        // Only what the worker has not yet: engines do not
                        // store a cached block again.
                        if blocks.is_empty() && worker.held.contains_key(&below(above, local)) {
                            above = below(above, local);
                            continue;
                        }
                        let block = worker.add(above, local);
                        above = block.name;
                        blocks.push(block);
                    }
                    store(&peer, &mut writer, id, worker, &blocks);
                }
            }
        }
        peer.flush();
        for _ in 0..12 {
            let worker = &model[rng.random_range(0..WORKERS as usize)];
            let place = worker.any(&mut rng);
            let mut prompt = worker.paths.get(&place).cloned().unwrap_or_default();
            prompt.extend((0..rng.random_range(1..8)).map(|_| local(&mut rng)));
            let mut found = Vec::new();
            peer.matches(&mut reader, P::query(&prompt), |worker, depth| {
                found.push((worker, depth));
            });
            found.sort_unstable();
            let depths = (0..WORKERS).map(|id| (id, model[id as usize].depth(&prompt)));
            let expected: Vec<_> = depths.filter(|(_, depth)| *depth > 0).collect();
            if found != expected {
                bail!("round {round}, prompt {prompt:x?}: {found:?} instead of {expected:?}");
            }
            for (worker, depth) in found {
                digest = mix(digest ^ (u64::from(worker) << 32 | u64::from(depth)));
                found_in_all += 1;
            }
        }
    }
    let everywhere: HashSet<Place> =
        model.iter().flat_map(|worker| worker.held.keys().copied()).collect();
    if everywhere.is_empty() || found_in_all < ROUNDS {
        bail!("the stream did not test anything");
    }
    let mut metrics = Metrics::default();
    // Fits a float exactly.
    metrics.add("check.digest", Unit::Nanoseconds, (digest >> 12) as f64);
    Ok(metrics)
}

/// One of two contents: workers shall meet often.
fn local(rng: &mut SmallRng) -> u64 {
    mix(rng.random_range(0..2))
}

/// Stores a run of new blocks below the worker's block above the first.
fn store<P: Peer>(peer: &P, writer: &mut P::Writer, id: u32, worker: &Worker, blocks: &[Block]) {
    let Some(first) = blocks.first() else { return };
    let (parent, _) = worker.held[&first.name];
    peer.store(writer, id, (parent != 0).then_some(parent), blocks);
}

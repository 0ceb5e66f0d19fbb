//! A simulated worker, and all that can happen to it.

use std::collections::BTreeSet;

use kvradix::{Block, Event, LocalHash, SequenceHash, WorkerId};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::index;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::args::Evict;
use crate::chain::{Chain, Request};
use crate::engine::{Engine, Served};

/// Names that a worker moves from place to place, beside its engine's.
const WANDERERS: usize = 32;
/// The most of them that one store moves.
const MOST_MOVED: usize = 8;
/// Different contents that they are given where they are given new ones.
const CONTENTS: u64 = 16;

/// What is the same in all of a worker's lives.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Blocks that its engine's cache holds.
    pub capacity: usize,
    pub evict: Evict,
    /// Whether its engine names blocks in its own way, in each life anew.
    pub own_names: bool,
    /// Whether a reference takes its events too.
    pub watched: bool,
}

/// A worker: its engine, and names that it moves about.
#[derive(Debug)]
pub struct Worker {
    pub id: WorkerId,
    pub kind: Kind,
    /// Whether the index knows it.
    pub known: bool,
    engine: Engine,
    salt: u64,
    wanderers: BTreeSet<SequenceHash>,
    lives: u64,
}

impl Worker {
    pub fn new(id: WorkerId, kind: Kind) -> Self {
        let mut worker = Self {
            id,
            kind,
            known: false,
            engine: Engine::new(id, kind.capacity, kind.evict, 0),
            salt: 0,
            wanderers: BTreeSet::new(),
            lives: 0,
        };
        worker.restart(id);
        worker
    }

    /// Begins a new life as `id`, with nothing.
    pub fn restart(&mut self, id: WorkerId) {
        self.lives += 1;
        self.id = id;
        self.known = false;
        if self.kind.own_names {
            self.salt = xxh3_64_with_seed(&id.id.to_le_bytes(), self.lives);
        }
        self.forget();
    }

    /// Has nothing any more, and goes on.
    pub fn forget(&mut self) {
        let Kind { capacity, evict, .. } = self.kind;
        self.engine = Engine::new(self.id, capacity, evict, self.salt);
        self.wanderers.clear();
    }

    /// How many names it has.
    pub fn names(&self) -> usize {
        self.engine.len() + self.wanderers.len()
    }

    /// Serves a request; see [`Engine::serve`].
    pub fn serve(&mut self, request: &Request, emit: &mut impl FnMut(Event)) -> Served {
        self.engine.serve(request, emit)
    }

    /// Stores a few of the wandering names at the beginning of `chain`, places
    /// that the engine may hold by other names, or at contents of their own:
    /// from where they were they go.
    pub fn wander(&mut self, chain: &Chain, rng: &mut SmallRng) -> Event {
        let count = rng.random_range(1..=MOST_MOVED);
        let names: Vec<_> =
            index::sample(rng, WANDERERS, count).iter().map(|n| self.name(n)).collect();
        let along_chain = rng.random_bool(0.5) && chain.len() >= count;
        let blocks = names.iter().enumerate().map(|(at, name)| {
            let mut own = || LocalHash(xxh3_64(&rng.random_range(0..CONTENTS).to_le_bytes()));
            let local = if along_chain { chain.locals()[at] } else { own() };
            Block { sequence: *name, local }
        });
        let blocks = blocks.collect();
        // Below one of them that stays, or at the root.
        let stays = self.wanderers.iter().find(|name| !names.contains(name));
        let parent = stays.copied().filter(|_| !along_chain && self.lives.is_multiple_of(2));
        self.wanderers.extend(names);
        Event::Stored { worker: self.id, parent, blocks }
    }

    /// Removes a few of the wandering names, and as many that it never had.
    pub fn lose(&mut self, rng: &mut SmallRng) -> Event {
        let mut names = Vec::new();
        for at in index::sample(rng, WANDERERS, MOST_MOVED) {
            names.push(self.name(at));
            self.wanderers.remove(&self.name(at));
        }
        Event::Removed { worker: self.id, names }
    }

    /// Workers that name alike have the same wanderers, each at other places.
    fn name(&self, wanderer: usize) -> SequenceHash {
        SequenceHash(xxh3_64_with_seed(&wanderer.to_le_bytes(), self.salt))
    }
}

//! The engines behind the routers.

use std::iter::Sum;
use std::ops::Add;

use kvradix::{Event, Matches, WorkerId};
use parking_lot::Mutex;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::args::{Names, ReplayArgs};
use crate::chain::Request;
use crate::engine::Engine;
use crate::router::{Decision, Loads};

/// All engines, and how much each has had to do.
#[derive(Debug)]
pub struct Fleet {
    engines: Vec<Mutex<Engine>>,
    loads: Loads,
}

/// What became of some requests; all but the first in blocks.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct Tally {
    pub requests: u64,
    /// Of the prompts, which are what was looked up.
    pub prompt: u64,
    /// Cached as a prefix where the request was sent.
    pub hit: u64,
    /// Cached as a prefix where the oracle would have sent it.
    pub oracle: u64,
    /// Cached as a prefix in some engine, overloaded or not.
    pub anywhere: u64,
    pub stored: u64,
    pub removed: u64,
}

impl Tally {
    /// Blocks looked up, stored and removed.
    pub fn operations(&self) -> u64 {
        self.prompt + self.stored + self.removed
    }
}

impl Fleet {
    /// Engines as asked for, all empty.
    pub fn new(args: &ReplayArgs) -> Self {
        let capacity = usize::try_from(args.cache_blocks).unwrap_or(usize::MAX);
        let engine = |id: u32| {
            let salt = match args.names {
                Names::Shared => 0,
                Names::PerWorker => xxh3_64(&id.to_le_bytes()),
            };
            let worker = WorkerId::new(id.into(), 0);
            Mutex::new(Engine::new(worker, capacity, args.evict, salt))
        };
        let engines: Vec<_> = (0..args.workers).map(engine).collect();
        Self { loads: Loads::new(engines.len()), engines }
    }

    /// Sends a request to the worker that `matches` and the loads speak for,
    /// and serves it there. Its events are handed out, in the order they
    /// count, while the worker's engine is locked, so no other request comes
    /// between those of this one.
    pub fn dispatch(
        &self,
        request: &Request,
        matches: &Matches,
        decision: &mut Decision,
        emit: &mut impl FnMut(Event),
    ) -> Tally {
        decision.refresh(&self.loads);
        let worker =
            decision.pick(matches.iter().map(|found| (found.worker.id as usize, found.depth)));
        let (oracle, anywhere) = self.look_into_caches(request, decision);
        let served = self.engines[worker].lock().serve(request, emit);
        self.loads.add(worker, request.chain.len() - served.reused);
        Tally {
            requests: 1,
            prompt: request.prompt_blocks as u64,
            hit: served.reused as u64,
            // Another router's request may have come in since the look.
            oracle: oracle.max(served.reused) as u64,
            anywhere: anywhere.max(served.reused) as u64,
            stored: served.stored as u64,
            removed: served.removed as u64,
        }
    }

    /// The longest prefix of the prompt that is cached by a worker which may
    /// take the request, and by any worker.
    fn look_into_caches(&self, request: &Request, decision: &Decision) -> (usize, usize) {
        let mut oracle = 0;
        let mut anywhere = 0;
        for (worker, engine) in self.engines.iter().enumerate() {
            let prefix = engine.lock().prefix(&request.chain, request.prompt_blocks);
            anywhere = anywhere.max(prefix);
            if decision.may_take(worker) {
                oracle = oracle.max(prefix);
            }
        }
        (oracle, anywhere)
    }
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            prompt: self.prompt + other.prompt,
            hit: self.hit + other.hit,
            oracle: self.oracle + other.oracle,
            anywhere: self.anywhere + other.anywhere,
            stored: self.stored + other.stored,
            removed: self.removed + other.removed,
        }
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        tallies.fold(Self::default(), Add::add)
    }
}

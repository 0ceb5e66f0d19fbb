//! An inference engine, as far as a router sees it: an LRU cache of blocks
//! that tells what it stored and what it evicted.

use std::ops::Range;

use kvradix::{Block, Event, SequenceHash, WorkerId};
use lru::LruCache;

use crate::args::Evict;
use crate::chain::{Chain, Request};

/// One worker's engine with its block cache.
///
/// Only the order in which a chain's blocks are touched tells the two ways to
/// evict apart. With [`Evict::Leaf`] a chain is touched from its end up, so
/// every cached block is older in the list than the block above it, and the
/// oldest of all has nothing below it. With [`Evict::Any`] it is touched from
/// its beginning down, and the oldest may have any number of blocks below it.
#[derive(Debug)]
pub struct Engine {
    worker: WorkerId,
    capacity: usize,
    evict: Evict,
    /// What tells this engine's names from the chain's sequence hashes.
    salt: u64,
    cache: LruCache<SequenceHash, ()>,
}

/// What serving one request did to the cache, in blocks.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Served {
    /// Of the prompt, those that were cached as a prefix of it.
    pub reused: usize,
    pub stored: usize,
    pub removed: usize,
}

impl Engine {
    /// An engine with an empty cache of `capacity` blocks. Engines with equal
    /// `salt` name their blocks alike.
    pub fn new(worker: WorkerId, capacity: usize, evict: Evict, salt: u64) -> Self {
        // Unbounded: the list would otherwise reserve its whole capacity, and
        // `make_room` must see what goes.
        Self { worker, capacity, evict, salt, cache: LruCache::unbounded() }
    }

    /// How many blocks are cached.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// How many of the chain's first `limit` blocks are cached without a gap.
    pub fn prefix(&self, chain: &Chain, limit: usize) -> usize {
        let sequences = &chain.sequences()[..limit];
        let cached = |sequence: &SequenceHash| self.cache.contains(&self.name(*sequence));
        match self.evict {
            // A cached block's ancestors are cached too.
            Evict::Leaf => sequences.partition_point(cached),
            Evict::Any => sequences.iter().take_while(|sequence| cached(sequence)).count(),
        }
    }

    /// Serves a request: caches its prompt and its answer, as far as they fit,
    /// and hands out the events in the order they count.
    pub fn serve(&mut self, request: &Request, emit: &mut impl FnMut(Event)) -> Served {
        let Request { chain, prompt_blocks } = request;
        let kept = chain.len().min(self.capacity);
        let kept_prompt = kept.min(*prompt_blocks);
        let path = &chain.sequences()[..kept];

        // What the path has becomes the newest, so that making room for the
        // rest, which fits, does not reach it.
        let mut missing = 0;
        let (mut prompt_gap, mut answer_gap) = (kept_prompt, kept);
        self.touch(path, |cache, at, name| {
            if cache.get(&name).is_none() {
                missing += 1;
                let gap = if at < kept_prompt { &mut prompt_gap } else { &mut answer_gap };
                *gap = at.min(*gap);
            }
        });
        let mut served = Served { reused: prompt_gap, ..Served::default() };
        self.make_room(missing, &mut served, emit);
        if missing > 0 {
            self.touch(path, |cache, _, name| {
                cache.put(name, ());
            });
        }
        // Below a gap everything is computed and stored anew, as engines do;
        // the answer only once the prompt is there.
        for blocks in [prompt_gap..kept_prompt, answer_gap..kept] {
            served.stored += blocks.len();
            self.tell_stored(chain, blocks, emit);
        }
        served
    }

    fn tell_stored(&self, chain: &Chain, blocks: Range<usize>, emit: &mut impl FnMut(Event)) {
        if blocks.is_empty() {
            return;
        }
        let name = |at: usize| self.name(chain.sequences()[at]);
        let parent = blocks.start.checked_sub(1).map(name);
        let blocks = blocks.map(|at| Block { sequence: name(at), local: chain.locals()[at] });
        emit(Event::Stored { worker: self.worker, parent, blocks: blocks.collect() });
    }

    /// Evicts the least recently used blocks until `missing` more fit.
    fn make_room(&mut self, missing: usize, served: &mut Served, emit: &mut impl FnMut(Event)) {
        let mut names = Vec::new();
        while self.cache.len() + missing > self.capacity {
            let Some((name, ())) = self.cache.pop_lru() else { break };
            names.push(name);
        }
        if !names.is_empty() {
            served.removed += names.len();
            emit(Event::Removed { worker: self.worker, names });
        }
    }

    /// Visits the path's blocks, given by position and name, in the order in
    /// which they are to age.
    fn touch(
        &mut self,
        path: &[SequenceHash],
        mut visit: impl FnMut(&mut LruCache<SequenceHash, ()>, usize, SequenceHash),
    ) {
        let salt = self.salt;
        let mut one = |(at, sequence): (usize, &SequenceHash)| {
            visit(&mut self.cache, at, salted(salt, *sequence));
        };
        match self.evict {
            Evict::Leaf => path.iter().enumerate().rev().for_each(&mut one),
            Evict::Any => path.iter().enumerate().for_each(&mut one),
        }
    }

    fn name(&self, sequence: SequenceHash) -> SequenceHash {
        salted(self.salt, sequence)
    }
}

fn salted(salt: u64, sequence: SequenceHash) -> SequenceHash {
    SequenceHash(sequence.0 ^ salt)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use kvradix::LocalHash;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const WORKER: WorkerId = WorkerId::new(3, 1);

    fn engine(capacity: usize, evict: Evict) -> Engine {
        Engine::new(WORKER, capacity, evict, 0)
    }

    fn request(prompt: &[u64], answer: &[u64]) -> Request {
        let mut request = Request { prompt_blocks: prompt.len(), ..Request::default() };
        prompt.iter().chain(answer).for_each(|local| request.chain.push(LocalHash(*local)));
        request
    }

    fn serve(engine: &mut Engine, request: &Request) -> (Served, Vec<Event>) {
        let mut events = Vec::new();
        let served = engine.serve(request, &mut |event| events.push(event));
        (served, events)
    }

    fn stored(request: &Request, blocks: Range<usize>) -> Event {
        let (locals, sequences) = (request.chain.locals(), request.chain.sequences());
        let parent = blocks.start.checked_sub(1).map(|above| sequences[above]);
        let blocks = blocks.map(|at| Block { sequence: sequences[at], local: locals[at] });
        Event::Stored { worker: WORKER, parent, blocks: blocks.collect() }
    }

    fn removed(names: &[SequenceHash]) -> Event {
        Event::Removed { worker: WORKER, names: names.to_vec() }
    }

    #[test]
    fn the_prompt_is_stored_from_the_root_and_the_answer_below_it() {
        let mut engine = engine(10, Evict::Leaf);
        let first = request(&[1, 2], &[3]);
        let (served, events) = serve(&mut engine, &first);
        assert_eq!(events, [stored(&first, 0..2), stored(&first, 2..3)]);
        assert_eq!(served, Served { reused: 0, stored: 3, removed: 0 });
    }

    #[test]
    fn only_what_is_missing_is_stored_under_the_last_cached_block() {
        let mut engine = engine(10, Evict::Leaf);
        serve(&mut engine, &request(&[1, 2], &[3]));
        let second = request(&[1, 2, 3, 4, 5], &[]);
        let (served, events) = serve(&mut engine, &second);
        assert_eq!(events, [stored(&second, 3..5)]);
        assert_eq!(served, Served { reused: 3, stored: 2, removed: 0 });
        let (served, events) = serve(&mut engine, &second);
        assert_eq!(events, []);
        assert_eq!(served, Served { reused: 5, stored: 0, removed: 0 });
    }

    #[test]
    fn eviction_comes_before_the_store_it_makes_room_for_and_goes_tail_first() {
        let mut engine = engine(4, Evict::Leaf);
        let old = request(&[1, 2, 3], &[]);
        serve(&mut engine, &old);
        let new = request(&[7, 8, 9], &[]);
        let (served, events) = serve(&mut engine, &new);
        let names = old.chain.sequences();
        assert_eq!(events, [removed(&[names[2], names[1]]), stored(&new, 0..3)]);
        assert_eq!(served, Served { reused: 0, stored: 3, removed: 2 });
        assert_eq!(engine.prefix(&old.chain, 3), 1);
    }

    #[test]
    fn any_block_may_go_first_and_the_rest_below_the_gap_is_stored_anew() {
        let mut engine = engine(4, Evict::Any);
        let old = request(&[1, 2, 3], &[]);
        serve(&mut engine, &old);
        let new = request(&[7, 8], &[]);
        let (_, events) = serve(&mut engine, &new);
        assert_eq!(events, [removed(&old.chain.sequences()[..1]), stored(&new, 0..2)]);
        assert_eq!(engine.prefix(&old.chain, 3), 0);
        let (served, events) = serve(&mut engine, &old);
        assert_eq!(events, [removed(&new.chain.sequences()[..1]), stored(&old, 0..3)]);
        assert_eq!(served, Served { reused: 0, stored: 3, removed: 1 });
    }

    #[test]
    fn of_a_prompt_longer_than_the_cache_the_beginning_is_kept() {
        let mut engine = engine(2, Evict::Leaf);
        let long = request(&[1, 2, 3, 4], &[5]);
        let (served, events) = serve(&mut engine, &long);
        assert_eq!(events, [stored(&long, 0..2)]);
        assert_eq!(served, Served { reused: 0, stored: 2, removed: 0 });
        let (served, events) = serve(&mut engine, &long);
        assert_eq!(events, []);
        assert_eq!(served.reused, 2);
    }

    #[test]
    fn engines_of_different_salt_name_one_block_differently() {
        let salted = Engine::new(WORKER, 2, Evict::Leaf, 5);
        let sequence = SequenceHash(1);
        assert_ne!(salted.name(sequence), engine(2, Evict::Leaf).name(sequence));
    }

    /// Plays random branching chains and follows the events as a router would.
    fn follow_events(evict: Evict) {
        let mut rng = SmallRng::seed_from_u64(7);
        let mut engine = engine(24, evict);
        let mut parents: HashMap<SequenceHash, Option<SequenceHash>> = HashMap::new();
        for _ in 0..5_000 {
            let locals: Vec<u64> =
                (0..rng.random_range(0..32)).map(|_| rng.random_range(0..3)).collect();
            let prompt = rng.random_range(0..=locals.len());
            let request = request(&locals[..prompt], &locals[prompt..]);
            let expected = engine.prefix(&request.chain, prompt);
            let (served, events) = serve(&mut engine, &request);
            assert_eq!(served.reused, expected);
            for event in events {
                match event {
                    Event::Stored { parent, blocks, .. } => {
                        assert!(parent.is_none_or(|parent| parents.contains_key(&parent)));
                        let mut above = parent;
                        for block in blocks {
                            parents.insert(block.sequence, above);
                            above = Some(block.sequence);
                        }
                    }
                    Event::Removed { names, .. } => {
                        for name in names {
                            assert!(parents.remove(&name).is_some(), "evicted what it had not");
                            let with_children: HashSet<_> =
                                parents.values().flatten().copied().collect();
                            assert!(evict == Evict::Any || !with_children.contains(&name));
                        }
                    }
                    Event::Cleared { .. } => panic!("an engine never clears"),
                }
            }
            assert!(parents.len() <= 24);
            assert_eq!(parents.len(), engine.cache.len());
            assert!(parents.keys().all(|name| engine.cache.contains(name)));
        }
    }

    #[test]
    fn leaf_eviction_never_takes_a_block_with_a_cached_child() {
        follow_events(Evict::Leaf);
    }

    #[test]
    fn events_tell_exactly_what_is_cached_when_any_block_may_go() {
        follow_events(Evict::Any);
    }
}

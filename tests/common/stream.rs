//! Streams of events and questions, made from a seed.
//!
//! A stream is a plain list, made before anything runs, so that a failing one
//! can be cut down to what matters and still runs.

use std::collections::HashSet;

use kvradix::{Block, Event, LocalHash, SequenceHash, WorkerId};
use rand::prelude::*;
use rand::rngs::SmallRng;

use super::paths::{Paths, Place, State, hash, mix};

/// What a stream looks like.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    pub workers: u64,
    pub eviction: Eviction,
    pub naming: Naming,
    /// One block in `moves` is stored under a name that its worker already
    /// has elsewhere; 0: none.
    pub moves: u32,
    /// Blocks per store and names per removal, at most.
    pub batch: usize,
    /// Different contents a block can have: the fewer, the more chains branch
    /// and rejoin.
    pub alphabet: u64,
    /// Blocks of a prompt, at most.
    pub prompt: usize,
    /// Of a hundred events, how many clear, leave or are malformed.
    pub rare: u32,
}

impl Mode {
    /// Six workers with one name space, batches up to 16, all kinds of events.
    pub const BASE: Mode = Mode {
        workers: 6,
        eviction: Eviction::AnyBlock,
        naming: Naming::Shared,
        moves: 0,
        batch: 16,
        alphabet: 3,
        prompt: 48,
        rare: 4,
    };

    /// Whether every worker has the same single name for a place.
    pub fn names_alike(&self) -> bool {
        self.naming == Naming::Shared && self.moves == 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Eviction {
    /// As engines do it by default: no block goes while one below it is held.
    TailFirst,
    /// Any block may go; chains have holes.
    AnyBlock,
    /// What was stored last goes first, from either end of the batch, and then
    /// some more; seldom any block.
    LastStored,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Naming {
    /// All workers name alike.
    Shared,
    /// Every worker names by its own hashes.
    PerWorker,
    /// Half of the workers name alike, the others by their own hashes.
    Mixed,
    /// Two names for a place, the same two for all workers.
    TwoShared,
    /// Two names for a place, different ones for each worker.
    TwoPerWorker,
    /// One worker's name for a place is another's for a different place.
    Clashing,
    /// A new name with every store.
    Fresh,
}

/// One step of a stream.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    Store {
        worker: WorkerId,
        parent: Option<SequenceHash>,
        blocks: Vec<Block>,
    },
    Remove {
        worker: WorkerId,
        names: Vec<SequenceHash>,
    },
    Clear {
        worker: WorkerId,
    },
    Leave {
        worker: WorkerId,
    },
    LeaveRanks {
        id: u64,
    },
    /// The same as events, handed in at once.
    Apply {
        events: Vec<Event>,
    },
    Ask {
        query: Vec<LocalHash>,
    },
    Flush,
    FlushWorker {
        worker: WorkerId,
    },
    /// Counts everything, and whether these names are there.
    Census {
        names: Vec<(WorkerId, SequenceHash)>,
    },
    /// Loads the worker's export into an empty index and asks that.
    Export {
        worker: WorkerId,
        queries: Vec<Vec<LocalHash>>,
        names: Vec<SequenceHash>,
    },
}

pub struct Stream {
    mode: Mode,
    rng: SmallRng,
    /// The number of the first worker; those of other threads come before.
    first: usize,
    paths: Paths,
    workers: Vec<State>,
    /// What workers are asked to compute, again and again.
    prompts: Vec<Vec<u64>>,
    /// Names a worker holds before evictions get more likely than stores.
    room: usize,
}

/// A stream of about `queries` questions. It ends with everybody gone.
pub fn stream(mode: Mode, seed: u64, queries: usize) -> Vec<Op> {
    let mut stream = Stream::new(mode, seed);
    let mut ops = stream.run(queries);
    stream.goodbye(&mut ops);
    ops
}

/// The same for several threads, `mode.workers` workers each: streams over
/// the same prompts, of workers of their own (an even number, so that no id
/// has ranks in two threads). They end with blocks held.
pub fn streams(mode: Mode, seed: u64, queries: usize, threads: u64) -> Vec<Vec<Op>> {
    let one = |thread| {
        let mut stream = Stream::new(mode, seed);
        stream.rng = SmallRng::seed_from_u64(mix(seed) ^ thread);
        stream.first = (thread * mode.workers) as usize;
        stream.run(queries)
    };
    (0..threads).map(one).collect()
}

impl Stream {
    fn new(mode: Mode, seed: u64) -> Self {
        let mut stream = Stream {
            mode,
            rng: SmallRng::seed_from_u64(seed),
            first: 0,
            paths: Paths::new(),
            workers: vec![State::default(); mode.workers as usize],
            prompts: Vec::new(),
            room: if mode.workers > 50 { 24 } else { 160 },
        };
        // Some streams fill up, some live on the edge of nothing.
        if stream.chance(1, 3) {
            stream.room /= 8;
        }
        for _ in 0..16 {
            let prompt = stream.prompt();
            stream.prompts.push(prompt);
        }
        stream
    }

    fn chance(&mut self, of: u32, among: u32) -> bool {
        self.rng.random_ratio(of, among)
    }

    /// Two ranks to each worker, one of them of the highest id there is.
    fn id(&self, worker: usize) -> WorkerId {
        let worker = self.first + worker;
        let id = worker as u64 / 2;
        WorkerId::new(if id == 1 { u64::MAX } else { id }, worker as u32 % 2)
    }

    fn content(&mut self) -> u64 {
        hash(self.rng.random_range(0..self.mode.alphabet) + 1)
    }

    /// A new prompt; most begin like another.
    fn prompt(&mut self) -> Vec<u64> {
        let length = self.rng.random_range(1..=self.mode.prompt);
        let mut prompt = Vec::new();
        if let Some(other) = self.prompts.choose(&mut self.rng) {
            prompt.extend_from_slice(&other[..self.rng.random_range(0..=other.len())]);
        }
        prompt.truncate(length);
        while prompt.len() < length {
            prompt.push(self.content());
        }
        prompt
    }

    fn name(&mut self, worker: usize, place: Place) -> u64 {
        let worker = (self.first + worker) as u64;
        let path = match self.paths.above[place as usize] {
            (0, content @ (0 | u64::MAX)) => content,
            _ => self.paths.hash[place as usize],
        };
        let own = mix(path ^ mix(worker));
        let second = self.chance(1, 3);
        let either = |name| if second { mix(name) } else { name };
        match self.mode.naming {
            Naming::Shared => path,
            Naming::PerWorker => own,
            Naming::Mixed => {
                if worker.is_multiple_of(2) {
                    path
                } else {
                    own
                }
            }
            Naming::TwoShared => either(path),
            Naming::TwoPerWorker => either(own),
            Naming::Clashing => u64::from(place) + worker - 1,
            Naming::Fresh => self.rng.random(),
        }
    }

    fn run(&mut self, queries: usize) -> Vec<Op> {
        let mut ops = Vec::new();
        let mut asked = 0;
        while asked < queries {
            for _ in 0..self.rng.random_range(1..=6) {
                let op = self.event();
                ops.push(op);
            }
            self.join_up(&mut ops);
            // An unflushed question has a weaker answer, but finds other races.
            if self.chance(1, 8) {
                let worker = self.rng.random_range(0..self.workers.len() + 1);
                ops.push(Op::FlushWorker { worker: self.id(worker) });
            }
            if !self.chance(1, 4) {
                ops.push(Op::Flush);
            }
            for _ in 0..self.rng.random_range(1..=6) {
                let query = self.query();
                ops.push(Op::Ask { query });
                asked += 1;
            }
            if self.chance(1, 8) {
                let names = self.some_names();
                ops.push(Op::Census { names });
            }
            if self.chance(1, 12) {
                let op = self.export();
                ops.push(op);
            }
        }
        ops
    }

    /// Hands the latest events in together, now and then.
    fn join_up(&mut self, ops: &mut Vec<Op>) {
        if !self.chance(1, 5) {
            return;
        }
        let mut events = Vec::new();
        while let Some(op) = ops.pop() {
            events.push(match op {
                Op::Store { worker, parent, blocks } => Event::Stored { worker, parent, blocks },
                Op::Remove { worker, names } => Event::Removed { worker, names },
                Op::Clear { worker } => Event::Cleared { worker },
                op => {
                    ops.push(op);
                    break;
                }
            });
        }
        events.reverse();
        ops.push(Op::Apply { events });
    }

    fn event(&mut self) -> Op {
        let worker = self.rng.random_range(0..self.workers.len());
        if self.chance(self.mode.rare, 100) {
            return self.rare_event(worker);
        }
        let fill = self.workers[worker].names.len() as u32 * 8 / self.room as u32;
        if self.chance((fill + 1).min(15), 16) { self.removal(worker) } else { self.store(worker) }
    }

    fn rare_event(&mut self, worker: usize) -> Op {
        match self.rng.random_range(0..8) {
            0 => {
                self.workers[worker] = State::default();
                Op::Clear { worker: self.id(worker) }
            }
            1 => {
                self.workers[worker] = State::default();
                Op::Leave { worker: self.id(worker) }
            }
            2 if self.chance(1, 3) => {
                let leaving = self.id(worker).id;
                for worker in 0..self.workers.len() {
                    if self.id(worker).id == leaving {
                        self.workers[worker] = State::default();
                    }
                }
                Op::LeaveRanks { id: leaving }
            }
            _ => self.malformed(worker),
        }
    }

    /// Some piece of a prompt below some block that the worker holds.
    fn store(&mut self, worker: usize) -> Op {
        if self.chance(1, 8) {
            let slot = self.rng.random_range(0..self.prompts.len());
            self.prompts[slot] = self.prompt();
        }
        let prompt = self.prompts.choose(&mut self.rng).unwrap().clone();

        let mut held = vec![(0, 0)];
        let mut prefix = (0, 0);
        let mut place = 0;
        for (number, &content) in prompt.iter().enumerate() {
            place = self.paths.step(place, content);
            if self.workers[worker].held.contains_key(&place) {
                held.push((number + 1, place));
                if prefix.0 == number {
                    prefix = (number + 1, place);
                }
            }
        }
        let (start, mut place) = match self.rng.random_range(0..8) {
            0 => (0, 0),
            1 => *held.choose(&mut self.rng).unwrap(),
            _ => prefix,
        };
        let parent = self.workers[worker].held.get(&place);
        let parent = parent.and_then(|names| names.choose(&mut self.rng)).copied();

        let most = if self.chance(1, 2) { self.mode.batch } else { self.mode.batch.min(4) };
        let length = self.rng.random_range(1..=most);
        let mut seen: HashSet<u64> = parent.into_iter().collect();
        let mut taken = Vec::new();
        for number in start..start + length {
            let content = match prompt.get(number) {
                Some(&content) => content,
                None if number == start => self.content(),
                None => break,
            };
            place = self.paths.step(place, content);
            let mut name = self.name(worker, place);
            if self.mode.moves > 0 && self.chance(1, self.mode.moves) {
                name = self.name_to_move(worker, place).unwrap_or(name);
            }
            while !seen.insert(name) {
                name = self.rng.random();
            }
            taken.push((name, place));
        }
        let block = |&(name, place): &(u64, Place)| Block {
            sequence: SequenceHash(name),
            local: LocalHash(self.paths.above[place as usize].1),
        };
        let blocks = taken.iter().map(block).collect();
        self.workers[worker].last = taken.iter().map(|(name, _)| *name).collect();
        for (name, place) in taken {
            self.workers[worker].learn(name, place);
        }
        Op::Store { worker: self.id(worker), parent: parent.map(SequenceHash), blocks }
    }

    /// A name the worker has; half of the time one of an ancestor's.
    fn name_to_move(&mut self, worker: usize, place: Place) -> Option<u64> {
        let state = &self.workers[worker];
        if self.rng.random_ratio(1, 2) {
            return state.names.choose(&mut self.rng).copied();
        }
        let mut above = place;
        for _ in 0..self.rng.random_range(1..8) {
            above = self.paths.above[above as usize].0;
        }
        state.held.get(&above)?.choose(&mut self.rng).copied()
    }

    fn removal(&mut self, worker: usize) -> Op {
        let most = if self.chance(1, 2) { self.mode.batch } else { self.mode.batch.min(3) };
        let count = self.rng.random_range(1..=most);
        let any = self.chance(1, 8);
        let mut names = match self.mode.eviction {
            Eviction::TailFirst => self.tails(worker, count),
            Eviction::LastStored if !any => self.last_stored(worker, count),
            Eviction::AnyBlock | Eviction::LastStored => {
                let held = &self.workers[worker].names;
                held.choose_multiple(&mut self.rng, count).copied().collect()
            }
        };
        // A run of neighbours, as an engine that frees a request gives them.
        if self.mode.eviction == Eviction::AnyBlock && self.chance(1, 2) {
            names.extend(self.tails(worker, count));
            if self.chance(1, 2) {
                names.shuffle(&mut self.rng);
            }
            names.truncate(count);
        }
        if self.chance(1, 25) {
            names.push(self.rng.random());
        }
        if self.chance(1, 25) {
            names.extend(self.workers.choose(&mut self.rng).unwrap().names.first());
        }
        if self.chance(1, 25) {
            names.extend(names.first().copied());
        }
        for &name in &names {
            self.workers[worker].forget(name);
        }
        Op::Remove { worker: self.id(worker), names: names.into_iter().map(SequenceHash).collect() }
    }

    /// Names to remove such that what is held above them stays.
    fn tails(&mut self, worker: usize, count: usize) -> Vec<u64> {
        let state = &self.workers[worker];
        let Some(&start) = state.names.choose(&mut self.rng) else { return Vec::new() };
        let children = |place: Place| &self.paths.children[place as usize];
        let mut place = state.at[&start].1;
        while let Some(&child) = children(place).iter().find(|child| state.held.contains_key(child))
        {
            place = child;
        }
        let mut names: Vec<u64> = Vec::new();
        let mut last = 0;
        while names.len() < count && place != 0 {
            let Some(held) = state.held.get(&place) else { break };
            let mut others = children(place).iter().filter(|&&child| child != last);
            if others.any(|child| state.held.contains_key(child)) {
                break;
            }
            names.extend(held);
            last = place;
            place = self.paths.above[place as usize].0;
        }
        names.truncate(count);
        names
    }

    /// Names of the last store, mostly the last ones, as they came or the other
    /// way about, and then those above, mostly.
    fn last_stored(&mut self, worker: usize, count: usize) -> Vec<u64> {
        let mut names = self.workers[worker].last.clone();
        if self.chance(1, 2) {
            names.drain(..names.len().saturating_sub(count));
        }
        if self.chance(1, 8) {
            names.pop();
        }
        if self.chance(1, 2) {
            names.reverse();
        }
        if self.chance(1, 3) {
            names.extend(self.tails(worker, count));
        }
        names
    }

    /// A store that is refused, or a late event of somebody not known.
    fn malformed(&mut self, worker: usize) -> Op {
        let late = WorkerId::new(1, 0); // the one id that `id` leaves out
        let before = self.workers[worker].clone();
        let mut op = self.store(worker);
        self.workers[worker] = before;
        let other = self.workers.choose(&mut self.rng).unwrap().names.first().copied();
        let kind = self.rng.random_range(0..7);
        if let Op::Store { worker, parent, blocks } = &mut op {
            match kind {
                0 => blocks.push(blocks[0]),
                1 => *parent = Some(blocks[blocks.len() / 2].sequence),
                2 => *parent = Some(SequenceHash(self.rng.random())),
                3 => {
                    *parent = Some(SequenceHash(self.rng.random()));
                    let first = blocks[0];
                    blocks.insert(blocks.len() / 2 + 1, Block { local: LocalHash(1), ..first });
                }
                4 => blocks.clear(),
                5 => {
                    *worker = late;
                    *parent = Some(SequenceHash(other.unwrap_or(5)));
                }
                _ => return self.late(late, other),
            }
        }
        // Another worker's name may be this one's too, so it may be no error
        // after all; the names are then held as they were.
        op
    }

    fn late(&mut self, worker: WorkerId, name: Option<u64>) -> Op {
        match self.rng.random_range(0..3) {
            0 => Op::Clear { worker },
            1 => Op::Leave { worker },
            _ => Op::Remove { worker, names: vec![SequenceHash(name.unwrap_or(3)); 2] },
        }
    }

    fn query(&mut self) -> Vec<LocalHash> {
        let kind = self.rng.random_range(0..16);
        let state = self.workers.choose(&mut self.rng).unwrap();
        let mut contents = match state.names.choose(&mut self.rng) {
            Some(name) if kind < 7 => self.paths.contents(state.at[name].1),
            _ => self.prompts.choose(&mut self.rng).unwrap().clone(),
        };
        match kind {
            0 | 7 => contents.truncate(self.rng.random_range(0..=contents.len())),
            1 | 8 => {
                let position = self.rng.random_range(0..contents.len());
                contents[position] = self.content();
            }
            2 | 9 => {
                for _ in 0..self.rng.random_range(1..=4) {
                    contents.push(self.content());
                }
            }
            10 => contents = (0..self.mode.prompt).map(|_| self.content()).collect(),
            11 => contents = vec![self.rng.random(); 3],
            _ => {}
        }
        contents.into_iter().map(LocalHash).collect()
    }

    fn some_names(&mut self) -> Vec<(WorkerId, SequenceHash)> {
        let mut names = Vec::new();
        for _ in 0..12 {
            let (asked, other) = (
                self.rng.random_range(0..self.workers.len()),
                self.rng.random_range(0..self.workers.len()),
            );
            for from in [asked, other] {
                let name = self.workers[from].names.choose(&mut self.rng);
                names.extend(name.map(|&name| (self.id(asked), SequenceHash(name))));
            }
        }
        names
    }

    fn export(&mut self) -> Op {
        let worker = self.rng.random_range(0..self.workers.len());
        Op::Export {
            worker: self.id(worker),
            queries: (0..6).map(|_| self.query()).collect(),
            names: self.workers[worker].names.iter().copied().map(SequenceHash).collect(),
        }
    }

    /// Everybody goes, each in one of the ways there are, and nothing stays.
    fn goodbye(&mut self, ops: &mut Vec<Op>) {
        for worker in 0..self.workers.len() {
            match self.rng.random_range(0..3) {
                0 => ops.push(Op::Leave { worker: self.id(worker) }),
                1 => ops.push(Op::Clear { worker: self.id(worker) }),
                _ => {
                    let mut names = self.workers[worker].names.clone();
                    names.shuffle(&mut self.rng);
                    for names in names.chunks(self.mode.batch) {
                        let names = names.iter().copied().map(SequenceHash).collect();
                        ops.push(Op::Remove { worker: self.id(worker), names });
                    }
                }
            }
        }
        let names = self.some_names();
        ops.push(Op::Census { names });
    }
}

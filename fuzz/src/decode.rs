//! Bytes to steps. Every input of a header's length means something.
//!
//! | byte of a record | store, fan, crowd | remove | ask |
//! | --- | --- | --- | --- |
//! | 0 | what to do; with the highest bit as an event | | |
//! | 1 | worker | | |
//! | 2 | parent; of a crowd, its workers | first name | name whose path it is |
//! | 3 | blocks | stride | blocks |
//! | 4 | prompt | names | prompt that goes on |
//! | 5 | how blocks are named | order | which of the two |
//! | 6 | position of an exception | exception | position of a changed block |
//! | 7 | the exception | exception | its content |

use std::collections::{BTreeMap, HashSet};

use kvradix::{Block, Event, LocalHash, SequenceHash, WorkerId};

use crate::common::paths::{Paths, Place, State, hash, mix};
use crate::common::stream::Op;
use crate::record::RECORD;
use crate::setup::{HEADER, Setup};

/// Blocks that one input stores and names that it removes, at most, and work
/// that its questions may be for the reference: an input shall take about a
/// millisecond.
const MOST_BLOCKS: usize = 4_096;
const MOST_ASKED: usize = 200_000;

/// What an input means.
pub struct Decoded {
    pub setup: Setup,
    pub ops: Vec<Op>,
    /// Every worker named every place alike.
    pub alike: bool,
}

impl Decoded {
    pub fn of(input: &[u8]) -> Option<Self> {
        let (header, records) = input.split_first_chunk::<HEADER>()?;
        let setup = Setup::of(header);
        let mut decoder = Decoder::new();
        // Each restart costs as much as all that is held then.
        let most_blocks = if setup.restart_every > 0 { MOST_BLOCKS / 8 } else { MOST_BLOCKS };
        for (number, record) in records.as_chunks::<RECORD>().0.iter().enumerate() {
            if decoder.blocks > most_blocks || decoder.asked > MOST_ASKED {
                break;
            }
            decoder.record(record);
            if number % 4 == 3 {
                decoder.ask_again();
            }
            if setup.census_every > 0 && number % setup.census_every == 0 {
                decoder.census();
            }
        }
        decoder.send_events();
        decoder.census();
        decoder.goodbye(setup.goodbye);
        Some(Decoded { setup, ops: decoder.ops, alike: decoder.alike })
    }
}

struct Decoder {
    ops: Vec<Op>,
    /// Events to be handed in together.
    events: Vec<Event>,
    paths: Paths,
    workers: BTreeMap<WorkerId, State>,
    /// Places stored lately, to be asked for.
    lately: [Place; 4],
    /// The next name that nobody has had.
    fresh: u64,
    alike: bool,
    blocks: usize,
    asked: usize,
    census: u64,
}

impl Decoder {
    fn new() -> Self {
        Self {
            ops: Vec::new(),
            events: Vec::new(),
            paths: Paths::new(),
            workers: BTreeMap::new(),
            lately: [0; 4],
            fresh: 1 << 40,
            alike: true,
            blocks: 0,
            asked: 0,
            census: 0,
        }
    }

    fn record(&mut self, record: &[u8; RECORD]) {
        let [what, worker, a, b, c, d, e, f] = *record;
        let worker = worker_id(worker);
        match what % 16 {
            0..=4 => {
                let parent = self.parent(worker, a, f);
                self.store(what, worker, parent, length(b), c, d, (e, f));
            }
            5 => {
                let parent = self.parent(worker, a, f);
                for child in 0..1 + b % 48 {
                    // Side by side, below one parent, each another content.
                    self.store(what, worker, parent, 1, c.wrapping_add(child), d | 0x80, (0, f));
                }
            }
            6 => {
                for number in 0..=a % 96 {
                    let WorkerId { id, dp_rank } = worker;
                    let member = WorkerId::new(id.wrapping_add(100 + u64::from(number)), dp_rank);
                    self.store(what, member, None, length(b).min(32), c, d, (e, f));
                }
            }
            7..=10 => self.remove(what, worker, record),
            11 | 12 => self.ask(worker, record),
            13 => match a % 6 {
                0 => self.act(Op::Flush),
                1 => self.act(Op::FlushWorker { worker }),
                2 | 3 => self.export(worker),
                4 => self.census(),
                _ => self.events_of_nobody(worker, b),
            },
            14 => match a % 8 {
                0..=3 => self.clear(what, worker),
                4..=6 => {
                    self.workers.remove(&worker);
                    self.act(Op::Leave { worker });
                }
                _ => {
                    self.workers.retain(|other, _| other.id != worker.id);
                    self.act(Op::LeaveRanks { id: worker.id });
                }
            },
            _ => {
                // The whole crowd goes.
                for number in 0..=a % 96 {
                    let WorkerId { id, dp_rank } = worker;
                    let member = WorkerId::new(id.wrapping_add(100 + u64::from(number)), dp_rank);
                    if b % 2 == 0 {
                        self.workers.remove(&member);
                        self.act(Op::Leave { worker: member });
                    } else {
                        self.clear(what, member);
                    }
                }
            }
        }
    }

    /// A step that is no event comes after those that wait.
    fn act(&mut self, op: Op) {
        self.send_events();
        self.ops.push(op);
    }

    /// An event: at once, or with its neighbours.
    fn event(&mut self, what: u8, event: Event) {
        if what & 0x80 != 0 {
            self.events.push(event);
            return;
        }
        self.act(match event {
            Event::Stored { worker, parent, blocks } => Op::Store { worker, parent, blocks },
            Event::Removed { worker, names } => Op::Remove { worker, names },
            Event::Cleared { worker } => Op::Clear { worker },
        });
    }

    fn send_events(&mut self) {
        if !self.events.is_empty() {
            let events = std::mem::take(&mut self.events);
            self.ops.push(Op::Apply { events });
        }
    }

    /// The name to store below, counted from the worker's latest.
    fn parent(&self, worker: WorkerId, parent: u8, other: u8) -> Option<u64> {
        let names = self.workers.get(&worker).map_or(&[][..], |state| &state.names);
        match parent {
            0 => None,
            // Mostly unknown: a name that anybody may have.
            255 => Some(hash(u64::from(other % 16))),
            _ if names.is_empty() => None,
            _ => Some(names[names.len() - 1 - (parent as usize - 1) % names.len()]),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn store(
        &mut self,
        what: u8,
        worker: WorkerId,
        parent: Option<u64>,
        length: usize,
        prompt: u8,
        naming: u8,
        (position, exception): (u8, u8),
    ) {
        self.blocks += length;
        let state = self.workers.get(&worker);
        let above = parent.and_then(|parent| Some(state?.at.get(&parent)?.1));
        let mut place = above.unwrap_or(0);
        let depth = self.paths.contents(place).len();

        let mut taken: Vec<(u64, Place)> = Vec::with_capacity(length);
        for at in 0..length {
            let mut content = content(prompt, naming, depth + at);
            if position >= 128 && usize::from(position) % length == at {
                content = hash(1 + u64::from(exception % 8));
            }
            place = self.paths.step(place, content);
            let mut name = self.name(worker, place, naming, at, exception);
            if (1..128).contains(&position) && usize::from(position) % length == at {
                name = self.exception(worker, exception, parent, &taken).unwrap_or(name);
                self.alike = false;
            }
            taken.push((name, place));
        }
        self.lately.rotate_right(1);
        self.lately[0] = place;

        let block = |&(name, place): &(u64, Place)| Block {
            sequence: SequenceHash(name),
            local: LocalHash(self.paths.above[place as usize].1),
        };
        let blocks = taken.iter().map(block).collect();
        let mut seen: HashSet<u64> = parent.into_iter().collect();
        let refused = !taken.iter().all(|(name, _)| seen.insert(*name));
        if !refused && (parent.is_none() || above.is_some()) {
            let state = self.workers.entry(worker).or_default();
            for (name, place) in taken {
                state.learn(name, place);
            }
        }
        let parent = parent.map(SequenceHash);
        self.event(what, Event::Stored { worker, parent, blocks });
    }

    /// What the worker calls the block, the batch's `at`th.
    fn name(&mut self, worker: WorkerId, place: Place, naming: u8, at: usize, other: u8) -> u64 {
        let path = match self.paths.above[place as usize] {
            (0, content @ (0 | u64::MAX)) => content,
            _ => self.paths.hash[place as usize],
        };
        let own = mix(path ^ mix(worker.id ^ u64::from(worker.dp_rank) << 40));
        let naming = naming % 8;
        self.alike &= naming == 0;
        match naming {
            0 => path,
            1 => own,
            2 => mix(path),
            3 => mix(own),
            // One worker's name for a place is another's for a different one.
            4 => u64::from(place) + worker.id % 8,
            5 => hash((u64::from(other) + at as u64) % 16),
            6 => {
                self.fresh += 1;
                self.fresh
            }
            _ => {
                let names = self.workers.get(&worker).map_or(&[][..], |state| &state.names);
                match names.len() {
                    0 => own,
                    len => names[(usize::from(other) + at) % len],
                }
            }
        }
    }

    /// A name that is moved here, or that makes the batch malformed.
    fn exception(
        &self,
        worker: WorkerId,
        exception: u8,
        parent: Option<u64>,
        taken: &[(u64, Place)],
    ) -> Option<u64> {
        let nth = |names: &[u64]| {
            let at = usize::from(exception / 8).checked_rem(names.len())?;
            Some(names[names.len() - 1 - at])
        };
        match exception % 8 {
            0..=3 => nth(&self.workers.get(&worker)?.names),
            4 => parent,
            5 => taken.first().map(|(name, _)| *name),
            6 => Some(hash(u64::from(exception / 8))),
            _ => {
                let (_, other) = self.workers.iter().nth(usize::from(exception / 8))?;
                other.names.last().copied()
            }
        }
    }

    fn remove(&mut self, what: u8, worker: WorkerId, record: &[u8; RECORD]) {
        let [_, _, first, stride, count, order, kind, other] = *record;
        let (first, stride) = (usize::from(first), usize::from(stride));
        let state = self.workers.entry(worker).or_default();
        let len = state.names.len();
        let count = if count >= 224 { len } else { (1 + usize::from(count) % 24).min(len) };
        let nth = |at: usize| state.names[len - 1 - (first + at * (1 + stride)) % len];
        let mut names: Vec<u64> = (0..count).map(nth).collect();
        match order % 4 {
            0 => names.reverse(),
            1 => names.sort_unstable(),
            _ => {}
        }
        match kind % 8 {
            0 => names.extend(names.first().copied()),
            1 => names.push(hash(u64::from(other % 16))),
            2 => {
                let other = self.workers.values().nth(usize::from(other % 16));
                names.extend(other.and_then(|other| other.names.last()));
            }
            _ => {}
        }
        self.blocks += names.len();
        let state = self.workers.entry(worker).or_default();
        names.iter().for_each(|name| state.forget(*name));
        let names = names.into_iter().map(SequenceHash).collect();
        self.event(what, Event::Removed { worker, names });
    }

    fn clear(&mut self, what: u8, worker: WorkerId) {
        self.workers.remove(&worker);
        self.event(what, Event::Cleared { worker });
    }

    /// Late, or never to be right.
    fn events_of_nobody(&mut self, worker: WorkerId, kind: u8) {
        let nobody = WorkerId::new(7_777, 0);
        let block = Block { sequence: SequenceHash(1), local: LocalHash(1) };
        self.act(match kind % 5 {
            0 => Op::Remove { worker: nobody, names: vec![SequenceHash(0); 2] },
            1 => Op::Clear { worker: nobody },
            2 => Op::Leave { worker: nobody },
            3 => {
                let parent = Some(SequenceHash(0));
                Op::Store { worker: nobody, parent, blocks: vec![block; 1] }
            }
            _ => Op::Store { worker, parent: Some(SequenceHash(99)), blocks: Vec::new() },
        });
    }

    fn ask(&mut self, worker: WorkerId, record: &[u8; RECORD]) {
        let [_, _, name, cut, prompt, kind, position, other] = *record;
        let names = self.workers.get(&worker).map_or(&[][..], |state| &state.names);
        let mut query = match names.len() {
            len if len > 0 && kind % 2 == 0 => {
                let name = names[len - 1 - usize::from(name) % len];
                self.paths.contents(self.workers[&worker].at[&name].1)
            }
            _ => Vec::new(),
        };
        let len = length(cut);
        while query.len() < len && kind % 4 < 2 {
            query.push(content(prompt, kind, query.len()));
        }
        if kind % 8 == 3 {
            query.truncate(len);
        }
        if position >= 128 && !query.is_empty() {
            let at = usize::from(position - 128) % query.len();
            query[at] = hash(1 + u64::from(other % 8));
        }
        self.ask_for(query);
    }

    fn ask_for(&mut self, query: Vec<u64>) {
        self.asked += query.len() * (1 + self.workers.len());
        self.act(Op::Ask { query: query.into_iter().map(LocalHash).collect() });
    }

    /// What was stored lately, whatever became of it.
    fn ask_again(&mut self) {
        self.act(Op::Flush);
        for place in self.lately {
            if place != 0 {
                self.ask_for(self.paths.contents(place));
            }
        }
    }

    fn census(&mut self) {
        self.census += 1;
        let mut names = Vec::new();
        for (worker, state) in self.workers.iter().take(8) {
            let at = self.census as usize;
            let some =
                (0..3).filter_map(|n| state.names.get((at * 7 + n * 5) % state.names.len().max(1)));
            for name in some {
                names.push((*worker, SequenceHash(*name)));
                // Perhaps the neighbour calls something so, too.
                names.push((WorkerId::new(worker.id ^ 1, worker.dp_rank), SequenceHash(*name)));
            }
        }
        self.asked += 500 + 10 * self.workers.len();
        self.act(Op::Census { names });
    }

    fn export(&mut self, worker: WorkerId) {
        let state = self.workers.get(&worker);
        let names: Vec<u64> = state.map_or(Vec::new(), |state| state.names.clone());
        self.blocks += names.len();
        let places = names.iter().rev().take(3).map(|name| state.expect("has names").at[name].1);
        let queries = places.chain(self.lately).map(|place| self.paths.contents(place));
        let queries =
            queries.map(|query| query.into_iter().map(LocalHash).collect()).collect::<Vec<_>>();
        let names = names.into_iter().map(SequenceHash).collect();
        self.act(Op::Export { worker, queries, names });
    }

    /// Everybody goes, and nothing stays.
    fn goodbye(&mut self, how: u8) {
        let workers = std::mem::take(&mut self.workers);
        for (number, (worker, state)) in workers.into_iter().enumerate() {
            match (usize::from(how) + number) % 4 {
                0 => self.act(Op::Leave { worker }),
                1 => self.act(Op::Clear { worker }),
                rest => {
                    let mut names = state.names;
                    if rest == 2 {
                        names.sort_unstable();
                    }
                    for names in names.chunks(1 + usize::from(how / 4)) {
                        let names = names.iter().rev().copied().map(SequenceHash).collect();
                        self.act(Op::Remove { worker, names });
                    }
                }
            }
        }
        self.act(Op::Census { names: Vec::new() });
    }
}

/// Ids with two ranks each, the lowest and the highest id among them.
fn worker_id(byte: u8) -> WorkerId {
    let id = u64::from(byte % 80 / 2);
    WorkerId::new(if id == 1 { u64::MAX - 1_000 } else { id }, u32::from(byte % 2))
}

/// Mostly short, sometimes longer than a node, rarely longer than many.
fn length(byte: u8) -> usize {
    let byte = usize::from(byte);
    match byte {
        0..=191 => 1 + byte % 12,
        192..=239 => byte - 176,
        _ => (byte - 239) * 40,
    }
}

/// Prompts whose numbers end in the same bits begin alike, two bits a block;
/// after four blocks they start again, so that contents come back deeper down.
/// In wide ones any two differ in their first block.
fn content(prompt: u8, naming: u8, depth: usize) -> u64 {
    if naming & 0x80 != 0 {
        return hash(16 + u64::from(prompt) + depth as u64 % 4);
    }
    hash(1 + u64::from(prompt.rotate_right(2 * (depth as u32 % 4)) & 3))
}

//! A stream of events in which panics strike, beside the reference.

use std::collections::{BTreeMap, BTreeSet};

use kvradix::fault::{self, Fault};
use kvradix::reference::ReferenceIndex;
use kvradix::{Block, Event, Index, LocalHash, Matches, SequenceHash, StoreError, WorkerId};
use kvradix_fault_tests::survive;

use crate::common::answer;
use crate::common::stream::Op;

/// What a run has to say.
#[derive(Default)]
pub struct Outcome {
    /// Where panics struck.
    pub struck: Vec<Fault>,
    /// How many workers were poisoned.
    pub poisoned: usize,
    /// How many panics left their event undone, or done.
    pub whole: usize,
}

/// An index and what it should say.
pub struct Run {
    pub index: Index,
    /// A poisoned worker has nothing here.
    reference: ReferenceIndex,
    /// What made the reference so, to try what else it could have been.
    done: Vec<Op>,
    poisoned: BTreeSet<WorkerId>,
    queries: Vec<Vec<LocalHash>>,
    matches: Matches,
    pub outcome: Outcome,
}

impl Run {
    pub fn new(index: Index, ops: &[Op]) -> Self {
        let query = |op: &Op| match op {
            Op::Ask { query } => Some(query.clone()),
            _ => None,
        };
        Self {
            index,
            reference: ReferenceIndex::new(),
            done: Vec::new(),
            poisoned: BTreeSet::new(),
            queries: ops.iter().filter_map(query).take(12).collect(),
            matches: Matches::new(),
            outcome: Outcome::default(),
        }
    }

    /// One step, in which the thread may be armed. Returns where it panicked.
    pub fn step(&mut self, op: &Op) -> Option<Fault> {
        let struck = match op {
            Op::Apply { events } => {
                // One at a time, so that it is known which of them panicked.
                return events.iter().filter_map(|event| self.step(&single(event))).last();
            }
            Op::Ask { query } => self.ask(query).err(),
            Op::Census { names } => self.census(names).err(),
            Op::Export { worker, .. } => self.export(*worker).err(),
            Op::Flush => survive(|| self.index.flush()).err(),
            Op::FlushWorker { worker } => survive(|| self.index.flush_worker(*worker)).err(),
            event => self.event(event).err(),
        };
        if let Some(point) = struck {
            fault::disarm();
            self.outcome.struck.push(point);
            self.note_poisoned();
            if let Op::LeaveRanks { .. } = op {
                // Those whose turn it was not yet.
                self.event(op).expect("disarmed");
            } else if let Some(worker) = worker_of(op) {
                self.settle(worker, op, point);
            }
            self.index.check();
        }
        struck
    }

    fn event(&mut self, op: &Op) -> Result<(), Fault> {
        let index = &self.index;
        match op {
            Op::Store { worker, parent, blocks } => {
                let got = survive(|| index.store(*worker, *parent, blocks))?;
                if self.poisoned.contains(worker) {
                    let repeated = matches!(got, Err(StoreError::RepeatedHash { .. }));
                    let expected = Err(StoreError::Poisoned { worker: *worker });
                    assert!(blocks.is_empty() || repeated || got == expected, "{got:?}");
                    return Ok(());
                }
                let expected = self.reference.store(*worker, *parent, blocks);
                assert_eq!(got.is_ok(), expected.is_ok(), "{got:?}, not {expected:?}");
            }
            Op::Remove { worker, names } => {
                survive(|| index.remove(*worker, names))?;
                self.reference.remove(*worker, names);
            }
            Op::Clear { worker } => {
                survive(|| index.clear(*worker))?;
                self.poisoned.remove(worker);
                self.reference.clear(*worker);
            }
            Op::Leave { worker } => {
                survive(|| index.remove_worker(*worker))?;
                self.poisoned.remove(worker);
                self.reference.remove_worker(*worker);
            }
            Op::LeaveRanks { id } => {
                survive(|| index.remove_ranks(*id))?;
                self.poisoned.retain(|worker| worker.id != *id);
                self.reference.remove_ranks(*id);
            }
            _ => unreachable!("no event"),
        }
        self.done.push(op.clone());
        Ok(())
    }

    /// Workers that are poisoned now and were not before hold nothing.
    fn note_poisoned(&mut self) {
        for worker in self.index.poisoned() {
            if self.poisoned.insert(worker) {
                self.outcome.poisoned += 1;
                self.forget(worker);
            }
        }
    }

    /// The worker is known and has nothing.
    fn forget(&mut self, worker: WorkerId) {
        let block = Block { sequence: SequenceHash(1), local: LocalHash(1) };
        let made = Op::Store { worker, parent: None, blocks: vec![block] };
        for op in [Op::Leave { worker }, made, Op::Clear { worker }] {
            apply(&mut self.reference, &op);
            self.done.push(op);
        }
    }

    /// After a panic in the worker's event: unless it is poisoned, the event
    /// counts whole or not at all.
    fn settle(&mut self, worker: WorkerId, op: &Op, point: Fault) {
        if self.poisoned.contains(&worker) {
            // A leaver may be gone all the same.
            if !self.index.poisoned().contains(&worker) {
                self.poisoned.remove(&worker);
                let known = self.index.workers().contains(&worker);
                let left = if known { Op::Clear { worker } } else { Op::Leave { worker } };
                apply(&mut self.reference, &left);
                self.done.push(left);
            }
            return;
        }
        self.index.flush();
        self.outcome.whole += 1;
        let mut with = ReferenceIndex::new();
        self.done.iter().chain([op]).for_each(|op| apply(&mut with, op));
        let (undone, done) = (self.differs(worker, &self.reference), self.differs(worker, &with));
        match (undone, done) {
            (None, _) => {
                // A first store that did not come to pass leaves its worker
                // known at most.
                let known = |workers: Vec<WorkerId>| workers.contains(&worker);
                if known(self.index.workers()) && !known(self.reference.workers()) {
                    self.forget(worker);
                }
            }
            (_, None) => {
                self.reference = with;
                self.done.push(op.clone());
            }
            (Some(undone), Some(done)) => {
                panic!("{op:x?} at {point:?}: neither undone ({undone}) nor done ({done})")
            }
        }
    }

    /// In what the worker is not what the reference says.
    fn differs(&self, worker: WorkerId, reference: &ReferenceIndex) -> Option<String> {
        if reference.workers().contains(&worker) && !self.index.workers().contains(&worker) {
            return Some("not known".to_owned());
        }
        let (got, expected) = (self.index.held(worker), reference.held(worker));
        if got != expected {
            return Some(format!("{got} names, not {expected}"));
        }
        let (got, expected) =
            (places(&self.index.export(worker)), places(&reference.export(worker)));
        (got != expected).then(|| "other places".to_owned())
    }

    fn ask(&mut self, query: &[LocalHash]) -> Result<(), Fault> {
        survive(|| self.index.matches_into(query, &mut self.matches))?;
        // Callers drain in every set-up here, so nothing is pending but what
        // a panic has left to the next drain.
        let left = fault::disarm();
        self.index.flush();
        self.index.matches_into(query, &mut self.matches);
        let expected = self.reference.matches(query);
        assert_eq!(answer(&self.matches), answer(&expected), "{query:x?}");
        assert_eq!(self.matches.best(), expected.best());
        rearm(left);
        Ok(())
    }

    fn export(&mut self, worker: WorkerId) -> Result<(), Fault> {
        let events = survive(|| self.index.export(worker))?;
        let mut loaded = ReferenceIndex::new();
        assert!(loaded.apply_all(&events).is_empty());
        assert_eq!(loaded.held(worker), self.reference.held(worker));
        Ok(())
    }

    fn census(&mut self, names: &[(WorkerId, SequenceHash)]) -> Result<(), Fault> {
        for &(worker, name) in names {
            let has = survive(|| self.index.has(worker, name))?;
            assert_eq!(has, self.reference.has(worker, name), "{worker} has {name}");
        }
        let left = fault::disarm();
        self.compare();
        rearm(left);
        Ok(())
    }

    /// Everything, at rest.
    pub fn compare(&self) {
        self.index.flush();
        self.index.check();
        assert_eq!(self.index.poisoned(), self.poisoned.iter().copied().collect::<Vec<_>>());
        assert_eq!(self.index.workers(), self.reference.workers());
        for worker in self.reference.workers() {
            assert_eq!(self.index.held(worker), self.reference.held(worker), "{worker}");
        }
        for query in &self.queries {
            let (got, expected) = (self.index.matches(query), self.reference.matches(query));
            assert_eq!(answer(&got), answer(&expected), "{query:x?}");
        }
        let (got, expected) = (self.index.stats(), self.reference.stats());
        assert_eq!(got.held_blocks, expected.held_blocks);
        let events = got.events;
        let gone = events.removed_blocks + events.cleared_blocks + events.left_blocks;
        let stored = events.stored_blocks - events.stored_again;
        assert_eq!(got.held_blocks, stored - gone - events.lost_blocks, "{events:?}");
        assert_eq!(got.pending_removals, 0);
        assert_eq!(got.poisoned_workers, self.poisoned.len() as u64);
        if self.poisoned.is_empty() {
            assert_eq!(got.tree_blocks, expected.tree_blocks);
            assert!(got.lookup_entries <= self.reference.held_places());
        } else {
            assert!(got.tree_blocks >= expected.tree_blocks);
        }
    }

    /// Heals whoever is poisoned, compares everything, and lets everybody go:
    /// nothing is left.
    pub fn finish(mut self) -> Outcome {
        fault::disarm();
        for worker in std::mem::take(&mut self.poisoned) {
            self.index.remove_worker(worker);
            self.reference.remove_worker(worker);
        }
        self.compare();
        for worker in self.index.workers() {
            self.index.remove_worker(worker);
        }
        crate::common::assert_empty(&self.index);
        self.outcome
    }
}

/// Goes on counting where `disarm` has stopped.
fn rearm(left: Option<u64>) {
    if let Some(left) = left {
        fault::arm(left);
    }
}

fn single(event: &Event) -> Op {
    match event.clone() {
        Event::Stored { worker, parent, blocks } => Op::Store { worker, parent, blocks },
        Event::Removed { worker, names } => Op::Remove { worker, names },
        Event::Cleared { worker } => Op::Clear { worker },
    }
}

/// Whose event it is.
fn worker_of(op: &Op) -> Option<WorkerId> {
    match op {
        Op::Store { worker, .. }
        | Op::Remove { worker, .. }
        | Op::Clear { worker }
        | Op::Leave { worker } => Some(*worker),
        _ => None,
    }
}

fn apply(reference: &mut ReferenceIndex, op: &Op) {
    match op {
        Op::Store { worker, parent, blocks } => _ = reference.store(*worker, *parent, blocks),
        Op::Remove { worker, names } => reference.remove(*worker, names),
        Op::Clear { worker } => reference.clear(*worker),
        Op::Leave { worker } => reference.remove_worker(*worker),
        Op::LeaveRanks { id } => reference.remove_ranks(*id),
        _ => unreachable!("no event"),
    }
}

/// Where each name stands that is left once these events of one worker are
/// applied: the path of contents from the root.
fn places(events: &[Event]) -> BTreeMap<SequenceHash, Vec<LocalHash>> {
    assert!(ReferenceIndex::new().apply_all(events).is_empty());
    let mut places = BTreeMap::<_, Vec<_>>::new();
    for event in events {
        match event {
            Event::Stored { parent, blocks, .. } => {
                let mut path = parent.map_or_else(Vec::new, |parent| places[&parent].clone());
                for block in blocks {
                    path.push(block.local);
                    places.insert(block.sequence, path.clone());
                }
            }
            Event::Removed { names, .. } => names.iter().for_each(|name| {
                places.remove(name);
            }),
            Event::Cleared { .. } => places.clear(),
        }
    }
    places
}

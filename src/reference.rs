//! The contract of [`Index`](crate::Index), written as literally as possible.
//!
//! [`ReferenceIndex`] has the same calls and no cleverness: one thread, plain
//! maps, no runs, no queues. It exists to be believed: the tests hold the
//! real index to it after every few events, and a router that doubts an
//! answer can keep one beside the index and compare.
//!
//! A worker's state is a map from *names* (the worker's sequence hashes) to
//! *places*. A place is a path of local hashes from the root. Written out, the
//! paths of a chain a million blocks deep would take its square, so each path
//! is kept once, as the place above and the last local hash, and has a number
//! for a name. That is the only thing here that is not the contract's own
//! wording.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::{
    Block, Event, EventCounts, LocalHash, Matches, Refused, SequenceHash, Stats, StoreError,
    WorkerId,
};

/// A path of local hashes from the root. Numbers are never used twice, and a
/// path's is above those of the paths it starts with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Place(u64);

/// The empty path.
const ROOT: Place = Place(0);

/// What is kept of a place.
#[derive(Debug)]
struct Path {
    /// The path without its last block.
    above: Place,
    /// The last block.
    local: LocalHash,
    /// The names, of all workers, that map here, and the kept places
    /// directly below. At 0 the place is forgotten.
    uses: u64,
}

/// Every place that a name of some worker maps to, and what is above those.
#[derive(Debug, Default)]
struct Places {
    paths: HashMap<Place, Path>,
    below: HashMap<(Place, LocalHash), Place>,
    /// How many places were ever made.
    made: u64,
}

impl Places {
    /// The place of `local` below `above`, if it is kept.
    fn find(&self, above: Place, local: LocalHash) -> Option<Place> {
        self.below.get(&(above, local)).copied()
    }

    /// The place of `local` below `above`, with one more use; made if needed.
    fn take(&mut self, above: Place, local: LocalHash) -> Place {
        let place = match self.find(above, local) {
            Some(place) => place,
            None => {
                self.made += 1;
                let place = Place(self.made);
                self.below.insert((above, local), place);
                self.paths.insert(place, Path { above, local, uses: 0 });
                if let Some(path) = self.paths.get_mut(&above) {
                    path.uses += 1;
                }
                place
            }
        };
        self.paths.get_mut(&place).expect("just found or made").uses += 1;
        place
    }

    /// Gives a use back. A place without uses is forgotten, and so one use of
    /// the place above it is given back, and so on.
    fn give_back(&mut self, mut place: Place) {
        while let Some(path) = self.paths.get_mut(&place) {
            path.uses -= 1;
            if path.uses > 0 {
                return;
            }
            let Path { above, local, .. } = *path;
            self.paths.remove(&place);
            self.below.remove(&(above, local));
            place = above;
        }
    }
}

/// A worker's state.
#[derive(Debug, Default)]
struct Worker {
    /// One place per name.
    names: BTreeMap<SequenceHash, Place>,
    /// How many names map to a place; a place that is not here is not held.
    holds: HashMap<Place, u64>,
}

impl Worker {
    fn holds(&self, place: Place) -> bool {
        self.holds.contains_key(&place)
    }

    /// A name less maps to `place`.
    fn let_go(&mut self, place: Place) {
        let names = self.holds.get_mut(&place).expect("a name mapped here");
        *names -= 1;
        if *names == 0 {
            self.holds.remove(&place);
        }
    }
}

/// The contract of [`Index`](crate::Index) as literally as possible: the same
/// calls with the same answers, for one thread, without queues. Removals
/// apply before the call returns.
///
/// A query costs a map look-up per worker and block, an export sorts all that
/// the worker holds.
///
/// ```
/// use kvradix::reference::ReferenceIndex;
/// use kvradix::{Block, LocalHash, SequenceHash, WorkerId};
///
/// let block = |name, content| Block { sequence: SequenceHash(name), local: LocalHash(content) };
/// let worker = WorkerId::new(1, 0);
///
/// let mut index = ReferenceIndex::new();
/// index.store(worker, None, &[block(100, 1), block(101, 2), block(102, 3)])?;
/// assert_eq!(index.matches(LocalHash::from_slice(&[1, 2, 3, 4])).depth_of(worker), 3);
///
/// // A hole ends the prefix; when it is filled, what is below counts again.
/// index.remove(worker, &[SequenceHash(101)]);
/// assert_eq!(index.matches(LocalHash::from_slice(&[1, 2, 3, 4])).depth_of(worker), 1);
/// index.store(worker, Some(SequenceHash(100)), &[block(101, 2)])?;
/// assert_eq!(index.matches(LocalHash::from_slice(&[1, 2, 3, 4])).depth_of(worker), 3);
/// # Ok::<(), kvradix::StoreError>(())
/// ```
#[derive(Debug, Default)]
pub struct ReferenceIndex {
    workers: BTreeMap<WorkerId, Worker>,
    places: Places,
    max_blocks: Option<u64>,
    max_worker_blocks: Option<u64>,
    events: EventCounts,
    unknown_removals: u64,
}

impl ReferenceIndex {
    /// An empty index without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Builder::max_blocks`](crate::Builder::max_blocks). Without other
    /// stores under way a store is refused exactly if the blocks of the tree
    /// and those of the batch are more together.
    #[must_use]
    pub fn max_blocks(self, blocks: u64) -> Self {
        Self { max_blocks: Some(blocks), ..self }
    }

    /// As [`Builder::max_worker_blocks`](crate::Builder::max_worker_blocks).
    #[must_use]
    pub fn max_worker_blocks(self, blocks: u64) -> Self {
        Self { max_worker_blocks: Some(blocks), ..self }
    }

    /// `worker` now holds `blocks`, each below the one before, the first
    /// below its block `parent` or at the root.
    ///
    /// A name that the worker already has moves to the new place. All places
    /// are added before moved names give up their old ones.
    ///
    /// # Errors
    ///
    /// [`StoreError::RepeatedHash`] where the batch repeats a name or names
    /// its own parent, else [`StoreError::ParentNotFound`] where the worker
    /// has no block `parent` now, else [`StoreError::WorkerFull`] or
    /// [`StoreError::IndexFull`] where a limit leaves no room; that comes
    /// first where the batch alone is above it. Nothing is stored then, and
    /// the batch's blocks count as refused. A batch of no blocks is never
    /// refused.
    pub fn store(
        &mut self,
        worker: WorkerId,
        parent: Option<SequenceHash>,
        blocks: &[Block],
    ) -> Result<(), StoreError> {
        if blocks.is_empty() {
            return Ok(());
        }
        let held_before = self.held(worker);
        let stored = self.try_store(worker, parent, blocks);
        let count = blocks.len() as u64;
        match &stored {
            Ok(()) => {
                self.events.stores += 1;
                self.events.stored_blocks += count;
                let new = self.held(worker) - held_before;
                self.events.stored_again += count - new as u64;
            }
            Err(error) => {
                let refused = self.events.refused.of_mut(error.kind());
                refused.events += 1;
                refused.blocks += count;
            }
        }
        stored
    }

    fn try_store(
        &mut self,
        worker: WorkerId,
        parent: Option<SequenceHash>,
        blocks: &[Block],
    ) -> Result<(), StoreError> {
        let count = blocks.len() as u64;
        self.keep_limits(worker, count, count)?;
        let mut seen: HashSet<SequenceHash> = parent.into_iter().collect();
        for block in blocks {
            if !seen.insert(block.sequence) {
                return Err(StoreError::RepeatedHash { worker, hash: block.sequence });
            }
        }
        let mut above = ROOT;
        if let Some(parent) = parent {
            above = self
                .workers
                .get(&worker)
                .and_then(|state| state.names.get(&parent).copied())
                .ok_or(StoreError::ParentNotFound { worker, parent })?;
        }

        let fresh = blocks.iter().filter(|block| !self.has(worker, block.sequence)).count();
        let tree_blocks = self.places.paths.len() as u64;
        self.keep_limits(worker, self.held(worker) as u64 + fresh as u64, tree_blocks + count)?;

        let state = self.workers.entry(worker).or_default();
        let mut left = Vec::new();
        for block in blocks {
            let place = self.places.take(above, block.local);
            *state.holds.entry(place).or_default() += 1;
            left.extend(state.names.insert(block.sequence, place));
            above = place;
        }
        for place in left {
            state.let_go(place);
            self.places.give_back(place);
        }
        Ok(())
    }

    /// Whether so many names of the worker and so many blocks of the tree are
    /// within the limits.
    fn keep_limits(&self, worker: WorkerId, names: u64, blocks: u64) -> Result<(), StoreError> {
        let above = |limit: Option<u64>, count| limit.filter(|limit| count > *limit);
        if let Some(limit) = above(self.max_worker_blocks, names) {
            let held_blocks = self.held(worker) as u64;
            return Err(StoreError::WorkerFull { worker, limit, held_blocks });
        }
        if let Some(limit) = above(self.max_blocks, blocks) {
            let tree_blocks = self.places.paths.len() as u64;
            return Err(StoreError::IndexFull { worker, limit, tree_blocks });
        }
        Ok(())
    }

    /// `worker` no longer has `names`. Those it does not have are counted
    /// and change nothing.
    pub fn remove(&mut self, worker: WorkerId, names: &[SequenceHash]) {
        if names.is_empty() {
            return;
        }
        match self.workers.contains_key(&worker) {
            true => self.events.removals += 1,
            false => self.events.stray_removals += 1,
        }
        for name in names {
            let state = self.workers.get_mut(&worker);
            match state.and_then(|state| Some((state.names.remove(name)?, state))) {
                Some((place, state)) => {
                    self.events.removed_blocks += 1;
                    state.let_go(place);
                    self.places.give_back(place);
                }
                None => self.unknown_removals += 1,
            }
        }
    }

    /// `worker` has no name any more; it stays known if it was.
    pub fn clear(&mut self, worker: WorkerId) {
        match self.give_up_all(worker) {
            Some(names) => {
                self.events.clears += 1;
                self.events.cleared_blocks += names;
            }
            None => self.events.stray_clears += 1,
        }
    }

    /// Clears `worker` and forgets it.
    pub fn remove_worker(&mut self, worker: WorkerId) {
        match self.give_up_all(worker) {
            Some(names) => {
                self.events.leavings += 1;
                self.events.left_blocks += names;
                self.workers.remove(&worker);
            }
            None => self.events.stray_leavings += 1,
        }
    }

    /// The worker has no name any more; how many it had, if it is known.
    fn give_up_all(&mut self, worker: WorkerId) -> Option<u64> {
        let names = std::mem::take(self.workers.get_mut(&worker)?).names;
        let count = names.len() as u64;
        for place in names.into_values() {
            self.places.give_back(place);
        }
        Some(count)
    }

    /// Clears and forgets every rank of worker `id`.
    pub fn remove_ranks(&mut self, id: u64) {
        for worker in self.workers() {
            if worker.id == id {
                self.remove_worker(worker);
            }
        }
    }

    /// Applies one event.
    ///
    /// # Errors
    ///
    /// Those of [`store`](Self::store).
    pub fn apply(&mut self, event: &Event) -> Result<(), StoreError> {
        match event {
            Event::Stored { worker, parent, blocks } => self.store(*worker, *parent, blocks)?,
            Event::Removed { worker, names } => self.remove(*worker, names),
            Event::Cleared { worker } => self.clear(*worker),
        }
        Ok(())
    }

    /// Applies all events in order; a refused one does not stop the others.
    /// Returns those refused.
    pub fn apply_all<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) -> Vec<Refused> {
        let events = events.into_iter().enumerate();
        events
            .filter_map(|(index, event)| Some(Refused { index, error: self.apply(event).err()? }))
            .collect()
    }

    /// For each worker the largest n > 0 such that it holds every prefix of
    /// `query` of length 1 to n.
    pub fn matches(&self, query: &[LocalHash]) -> Matches {
        let mut matches = Matches::new();
        self.matches_into(query, &mut matches);
        matches
    }

    /// [`matches`](Self::matches) into a used answer.
    pub fn matches_into(&self, query: &[LocalHash], matches: &mut Matches) {
        let (found, _) = matches.begin();
        let mut place = ROOT;
        let mut depth = 0;
        let mut holders: Vec<_> = self.workers.iter().collect();
        for &local in query.iter().take(u32::MAX as usize) {
            let Some(below) = self.places.find(place, local) else { break };
            holders.retain(|(worker, state)| {
                let holds = state.holds(below);
                if !holds && depth > 0 {
                    found.push(**worker, depth);
                }
                holds
            });
            if holders.is_empty() {
                return;
            }
            place = below;
            depth += 1;
        }
        if depth > 0 {
            holders.into_iter().for_each(|(worker, _)| found.push(*worker, depth));
        }
    }

    /// Does nothing: every removal has been applied.
    pub fn flush(&self) {}

    /// Does nothing: every removal has been applied.
    pub fn flush_worker(&self, _worker: WorkerId) {}

    /// Counts of what is kept and of the events. What speaks of the index's
    /// structure is 0: nodes, memory, pending removals and drains. So is
    /// `lookup_entries`: see [`held_places`](Self::held_places), its bound.
    pub fn stats(&self) -> Stats {
        Stats {
            workers: self.workers.len() as u64,
            tree_blocks: self.places.paths.len() as u64,
            held_blocks: self.workers.values().map(|state| state.names.len() as u64).sum(),
            refused_blocks: self.events.refused.total().blocks,
            limited_blocks: self.events.refused.limited().blocks,
            unknown_removals: self.unknown_removals,
            events: self.events,
            ..Stats::default()
        }
    }

    /// How many places at least one worker holds.
    ///
    /// An index has at most as many
    /// [`lookup_entries`](Stats::lookup_entries), and exactly as many where
    /// all workers name alike.
    pub fn held_places(&self) -> u64 {
        let held = self.workers.values().flat_map(|state| state.holds.keys());
        held.collect::<HashSet<_>>().len() as u64
    }

    /// Known workers, sorted.
    pub fn workers(&self) -> Vec<WorkerId> {
        self.workers.keys().copied().collect()
    }

    /// Whether `worker` has `name` now.
    pub fn has(&self, worker: WorkerId, name: SequenceHash) -> bool {
        self.workers.get(&worker).is_some_and(|state| state.names.contains_key(&name))
    }

    /// How many names `worker` has now; 0 if it is unknown.
    pub fn held(&self, worker: WorkerId) -> usize {
        self.workers.get(&worker).map_or(0, |state| state.names.len())
    }

    /// The events that make an empty index hold what `worker` holds, under
    /// the same names.
    ///
    /// Stores come first, parents before what is below them, then one
    /// removal, if the worker has holes: the block of a hole is stored under
    /// a name that the worker does not use, and removed again.
    pub fn export(&self, worker: WorkerId) -> Vec<Event> {
        let Some(state) = self.workers.get(&worker) else { return Vec::new() };

        // What must be there when the last store is done, sorted by number:
        // a place's is above that of the place it is below.
        let mut needed = BTreeSet::new();
        for &held in state.holds.keys() {
            let mut place = held;
            while place != ROOT && needed.insert(place) {
                place = self.places.paths[&place].above;
            }
        }

        // The name each is stored under first, and the names left over.
        let mut first = HashMap::new();
        let mut second = Vec::new();
        for (&name, &place) in &state.names {
            match first.entry(place) {
                Entry::Vacant(entry) => _ = entry.insert(name),
                Entry::Occupied(_) => second.push((name, place)),
            }
        }
        let mut fresh = (0..).map(SequenceHash).filter(|name| !state.names.contains_key(name));
        let mut temporary = Vec::new();
        for &place in &needed {
            first.entry(place).or_insert_with(|| {
                let name = fresh.next().expect("a worker has fewer names than there are");
                temporary.push(name);
                name
            });
        }

        let mut events = Vec::new();
        let mut run = Vec::new();
        let mut start = None;
        let mut last = ROOT;
        let stored = |parent, blocks| Event::Stored { worker, parent, blocks };
        for &place in &needed {
            let Path { above, local, .. } = self.places.paths[&place];
            if above != last && !run.is_empty() {
                events.push(stored(start, std::mem::take(&mut run)));
            }
            if run.is_empty() {
                start = first.get(&above).copied();
            }
            run.push(Block { sequence: first[&place], local });
            last = place;
        }
        if !run.is_empty() {
            events.push(stored(start, run));
        }
        for (name, place) in second {
            let Path { above, local, .. } = self.places.paths[&place];
            let parent = first.get(&above).copied();
            events.push(stored(parent, vec![Block { sequence: name, local }]));
        }
        if !temporary.is_empty() {
            events.push(Event::Removed { worker, names: temporary });
        }
        events
    }
}

//! The index as its threads share it: the tree, the lanes and the pool.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::figures::{Figure, Sums};
use super::lane::{Lane, LaneState, Mark};
use super::names::Names;
use super::place::Place;
use super::queue;
use super::repeated::first_repeated;
use super::strays::Strays;
use super::turn::Turn;
use super::{Holdings, Refusal, Tree, TreeConfig};
use crate::sync::rank::{self, Rank};
use crate::sync::{
    Alarm, Arc, AtomicBool, Clock, Counter, Fault, Guard, Mutant, Mutex, Omission, Ordering,
    SegQueue, ShardedMap, TaskPool, fault, mutant, omitted, pin,
};
use crate::trace::{Span, Warnings};
use crate::{Block, LocalHash, Matches, Memory, SequenceHash, Stats, StoreError, WorkerId};

/// How an index behaves.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    pub(crate) tree: TreeConfig,
    /// Shards of the registry.
    pub(crate) registry_shards: usize,
    /// How long a removal may wait.
    pub(crate) removal_delay: Duration,
    /// Pending names of a worker at which its lane goes to the pool.
    pub(crate) drain_threshold: usize,
    /// Pending names of a worker above which the caller drains.
    pub(crate) max_pending: usize,
}

/// The threads that apply removals, shared by the indexes of one pool. The
/// alarm is dropped first: it hands work to the tasks.
pub(crate) struct Threads {
    pub(crate) alarm: Alarm,
    pub(crate) tasks: TaskPool,
}

/// Lanes that one task of the pool goes through.
const LANES_PER_TASK: usize = 16;
/// Nodes that a clear lets go under one pin.
const CLEAR_BATCH: usize = 64;
/// Nodes that a clear has fetched before their turn comes.
const NODES_AHEAD: usize = 8;

pub(crate) struct Shared {
    pub(crate) tree: Tree,
    registry: ShardedMap<WorkerId, Arc<Lane>>,
    /// Lanes with removals that nobody may have looked at yet.
    dirty: SegQueue<Arc<Lane>>,
    /// Whether the alarm is set and has yet to go off.
    armed: AtomicBool,
    /// When a lane was last listed for the alarm; 0 where the alarm is not
    /// set. A figure.
    recent: Counter,
    clock: Clock,
    pool: Arc<Threads>,
    config: Config,
    /// The figures of lanes that are gone. Locked while one goes, so that who
    /// adds up all lanes sees each in one place.
    departed: Mutex<Sums>,
    strays: Strays,
    warnings: Warnings,
    /// How many of the next drains panic between their pop and their apply.
    #[cfg(test)]
    failing_drains: Counter,
}

impl Shared {
    pub(crate) fn new(config: Config, pool: Arc<Threads>) -> Self {
        let tree = Tree::new(config.tree);
        let departed = Mutex::new(Sums::of_none(tree.bytes_to_begin_with()));
        Self {
            tree,
            registry: ShardedMap::new(config.registry_shards, Rank::Registry),
            dirty: SegQueue::new(),
            armed: AtomicBool::new(false),
            recent: Counter::new(0),
            clock: Clock::new(),
            pool,
            config,
            departed,
            strays: Strays::default(),
            warnings: Warnings::default(),
            #[cfg(test)]
            failing_drains: Counter::new(0),
        }
    }

    pub(crate) fn matches_into(&self, query: &[LocalHash], matches: &mut Matches) {
        self.tree.matches_into(query, matches);
    }

    pub(crate) fn store(
        &self,
        worker: WorkerId,
        parent: Option<SequenceHash>,
        blocks: &[Block],
    ) -> Result<(), StoreError> {
        if blocks.is_empty() {
            return Ok(());
        }
        self.tree.garbage.relieve();
        let stored = self.store_checked(worker, parent, blocks);
        if let Err(error) = &stored {
            let count = self.strays.refused(error.kind(), blocks.len());
            self.warnings.refused(error, blocks.len(), count, &self.clock);
        }
        stored
    }

    fn store_checked(
        &self,
        worker: WorkerId,
        parent: Option<SequenceHash>,
        blocks: &[Block],
    ) -> Result<(), StoreError> {
        let no_parent = |parent| StoreError::ParentNotFound { worker, parent };
        let repeated = |hash| Err(StoreError::RepeatedHash { worker, hash });
        if self.tree.limits.all_too_small(blocks.len()) && !self.tree.limits.is_lenient() {
            return Err(self.oversized(worker, blocks.len()));
        }
        if let Some(at) = blocks.iter().position(|block| Some(block.sequence) == parent) {
            let first = first_repeated(&blocks[..at], self.tree.fold);
            return repeated(first.unwrap_or(blocks[at].sequence));
        }
        let full = |full| self.tree.limits.error(worker, full);
        let mut room = None;
        loop {
            let lane = match self.registry.get(&worker) {
                Some(lane) => lane,
                None => {
                    if let Some(hash) = first_repeated(blocks, self.tree.fold) {
                        return repeated(hash);
                    }
                    if let Some(parent) = parent {
                        return Err(no_parent(parent));
                    }
                    if room.is_none() {
                        room = self.tree.admit_new(blocks.len()).map_err(full)?;
                    }
                    self.join(worker)
                }
            };
            let mut turn = self.turn(&lane);
            if turn.state.closed && !mutant(Mutant::StoreIntoClosed) {
                continue;
            }
            if let Some(hash) = first_repeated(blocks, self.tree.fold) {
                return repeated(hash);
            }
            if turn.state.poisoned {
                return Err(StoreError::Poisoned { worker });
            }
            fault(Fault::StoreBegins);
            let mut guard = pin();
            if !mutant(Mutant::StoreBeforeDrain) {
                guard = self.drain_locked(&mut turn, guard);
            }
            fault(Fault::StoreApplies);
            turn.torn = true;
            if let Some(room) = room {
                room.move_to(&mut turn.state.holdings.scratch);
            }
            let before = turn.state.holdings.names.count;
            let stored = self.tree.store(&mut turn.state.holdings, parent, blocks, &guard);
            fault(Fault::StoreEnds);
            if stored.is_ok() {
                turn.state.known = true;
                let again = blocks.len() - (turn.state.holdings.names.count - before);
                lane.figures.add(Figure::Stores, 1);
                lane.figures.add(Figure::StoredNew, blocks.len() - again);
                lane.figures.add(Figure::StoredAgain, again);
            }
            lane.note(&turn.state.holdings);
            self.end_event(turn, guard);
            return match (stored, parent) {
                (Err(Refusal::Full(limit)), _) => Err(full(limit)),
                (Err(Refusal::NoParent), Some(parent)) => Err(no_parent(parent)),
                _ => Ok(()),
            };
        }
    }

    /// From now on so many threads load a snapshot, and its parts may be above
    /// the limits; 0: none does. No event is under way.
    #[cfg(feature = "snapshot")]
    pub(crate) fn set_loaders(&self, loaders: usize) {
        self.tree.limits.set_loaders(loaders);
    }

    /// Makes a worker known that holds nothing: a snapshot knew it.
    #[cfg(feature = "snapshot")]
    pub(crate) fn know(&self, worker: WorkerId) {
        // Who joins retires the table of slots before, O(workers) bytes.
        self.tree.garbage.relieve();
        let lane = self.join(worker);
        let mut turn = self.turn(&lane);
        turn.state.known = true;
        lane.note(&turn.state.holdings);
    }

    /// What is above its limit, of the index and this worker.
    #[cfg(feature = "snapshot")]
    pub(crate) fn exceeded(&self, worker: WorkerId) -> Option<StoreError> {
        let full = self.tree.limits.exceeded(self.held(worker))?;
        Some(self.tree.limits.error(worker, full))
    }

    /// A batch that no limit has room for. What the worker has removed is not
    /// told as held.
    #[cold]
    fn oversized(&self, worker: WorkerId, blocks: usize) -> StoreError {
        self.flush_worker(worker);
        let held = self.registry.get(&worker).map_or(0, |lane| lane.figures.names());
        self.tree.limits.error(worker, self.tree.limits.oversized(blocks, held as usize))
    }

    /// The worker's lane, made if there is none.
    fn join(&self, worker: WorkerId) -> Arc<Lane> {
        let make = || {
            let mut seat = Seat { tree: &self.tree, slot: None };
            let joined = self.tree.roster.join(worker, &self.tree.garbage);
            let slot = *seat.slot.insert(joined);
            fault(Fault::SlotTaken);
            let lane = Arc::new(Lane::new(worker, slot, self.tree.fold));
            seat.slot = None;
            lane
        };
        if mutant(Mutant::LaneUnchecked) {
            self.registry.remove_if(&worker, |_| true);
        }
        let lane = self.registry.get_or_insert_with(worker, || Some(make()));
        lane.expect("one was there or was made")
    }

    /// After an event whose figures were noted: what it retired is handed
    /// over, and what can be freed by now is freed.
    fn end_event(&self, mut turn: Turn<'_>, guard: Guard) {
        fault(Fault::EventEnds);
        fault(Fault::HandingOver);
        let sealed = self.tree.hand_over(&mut turn.state.holdings, &guard);
        turn.state.slim();
        turn.torn = false;
        drop(guard);
        drop(turn);
        fault(Fault::Reclaiming);
        if sealed {
            self.tree.garbage.reclaim();
        }
    }

    /// Queues removals; see [`Index::remove`](crate::Index::remove).
    pub(crate) fn remove(this: &Arc<Self>, worker: WorkerId, names: &[SequenceHash]) {
        if names.is_empty() {
            return;
        }
        let handed_in = if names.len() <= queue::CHUNK {
            this.registry.with(&worker, |lane| this.hand_in(lane, names))
        } else {
            // Too many to copy under the shard's lock.
            this.registry.get(&worker).map(|lane| this.hand_in(&lane, names))
        };
        match handed_in {
            None => this.strays.removals(1, names.len()),
            Some(Next::Wait) => {}
            Some(Next::Drain(lane)) => this.drain(&lane),
            Some(Next::Tell { lane, listed, pending }) => {
                // First, whatever is drained here: later removers find the
                // lane listed, and tell nobody.
                let above = pending > this.config.max_pending;
                let told = listed || (above && mutant(Mutant::DrainerUnlisted));
                if !told {
                    this.dirty.push(lane.clone());
                    Self::arm(this);
                }
                if above {
                    // More than were handed in, so that the queue gets no
                    // longer, but not all at once.
                    this.drain_at_most(&lane, queue::CHUNK.max(names.len() * 2));
                } else if pending >= this.config.drain_threshold {
                    Self::schedule(this, lane);
                }
            }
        }
    }

    /// Queues removals of a lane. It is not to be locked yet: its shard of the
    /// registry is, unless there are more names than a chunk's.
    #[inline]
    fn hand_in(&self, lane: &Arc<Lane>, names: &[SequenceHash]) -> Next {
        debug_assert!(names.len() <= queue::CHUNK || rank::holds_none(), "a long copy");
        let threads = self.pool.tasks.threads() > 0;
        // Before the names count. For a figure, and so no part of the models'
        // search.
        if !cfg!(kvradix_loom) && lane.queue.unapplied() == 0 {
            lane.since.store(self.recent_time(), Ordering::Relaxed);
        }
        let (mut pending, mut listed) = (0, true);
        for (turn, part) in names.chunks(queue::CHUNK).enumerate() {
            let Some(now) = lane.queue.hand_in(part, turn == 0, threads) else {
                // Who closed the lane has drained what came before.
                let late = names.len() - turn * queue::CHUNK;
                self.strays.removals(usize::from(turn == 0), late);
                return Next::Wait;
            };
            pending = now.pending;
            // Listed anew as soon as one part was not.
            listed &= now.listed;
        }
        if !threads {
            return Next::Drain(lane.clone());
        }
        if listed && pending < self.config.drain_threshold.min(self.config.max_pending) {
            return Next::Wait;
        }
        Next::Tell { lane: lane.clone(), listed, pending }
    }

    /// Sends a task of the pool to the lane, unless one is on its way.
    fn schedule(this: &Arc<Self>, lane: Arc<Lane>) {
        // AcqRel: pairs with the swap below. If it comes first, a new task is
        // sent; else the task that is on its way sees our names.
        let relaxed = mutant(Mutant::ScheduledRelaxed);
        let acq_rel = if relaxed { Ordering::Relaxed } else { Ordering::AcqRel };
        if lane.scheduled.swap(true, acq_rel) {
            return;
        }
        // Not the lane but whose it is: a task that waits keeps nothing of a
        // worker that has left. Should he be back, his new lane is drained.
        let (shared, worker) = (Arc::downgrade(this), lane.worker);
        let task = move || {
            let Some(shared) = shared.upgrade() else { return };
            let Some(lane) = shared.registry.get(&worker) else { return };
            let late = mutant(Mutant::ScheduledClearedLate);
            if !late {
                lane.scheduled.swap(false, acq_rel);
            }
            _ = Self::drain_caught(&shared, &lane);
            if late {
                lane.scheduled.swap(false, Ordering::AcqRel);
            }
        };
        if !this.pool.tasks.spawn(task) {
            lane.scheduled.swap(false, Ordering::AcqRel);
            this.drain(&lane);
        }
    }

    /// A drain whose panic is not to end its thread, nor keep it from other
    /// lanes. What it has not applied stays in the lane, which is listed again.
    fn drain_caught(this: &Arc<Self>, lane: &Arc<Lane>) -> std::thread::Result<()> {
        let drained = catch_unwind(AssertUnwindSafe(|| this.drain(lane)));
        if drained.is_err() && !lane.queue.set_listed(true) {
            this.dirty.push(lane.clone());
            Self::arm(this);
        }
        drained
    }

    /// Has the alarm go off a delay from now, unless it will before.
    fn arm(this: &Arc<Self>) {
        this.recent.store(this.clock.now(), Ordering::Relaxed);
        // AcqRel: pairs with the swap in `tick`. If it comes first, the alarm
        // is set anew; else the tick that is to come sees what was listed.
        if this.armed.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::downgrade(this);
        let tick = move || {
            if let Some(shared) = shared.upgrade() {
                Self::tick(&shared);
            }
        };
        if !this.pool.alarm.after(this.config.removal_delay, tick) {
            Self::tick(this);
        }
    }

    /// The alarm's work: every lane that is listed goes to the pool.
    fn tick(this: &Arc<Self>) {
        let late = mutant(Mutant::ArmedClearedLate);
        if !late {
            this.armed.swap(false, Ordering::AcqRel);
        }
        // Behind the swap: who arms meanwhile may find his time gone, and
        // clocks are read, but no time outlives its alarm.
        this.recent.store(0, Ordering::Relaxed);
        Self::send_listed(this);
        if late {
            this.armed.swap(false, Ordering::AcqRel);
        }
    }

    /// Every lane that is listed goes to the pool. There is nothing to do in
    /// those of workers that have left: who closed them has drained them, and
    /// later removers drain their own names.
    fn send_listed(this: &Arc<Self>) {
        let mut lanes = Vec::new();
        while let Some(lane) = this.dirty.pop() {
            if !lane.queue.is_closed() {
                lanes.push(lane);
            }
        }
        for lanes in lanes.chunks(LANES_PER_TASK) {
            // By their workers, as in `schedule`.
            let workers: Vec<WorkerId> = lanes.iter().map(|lane| lane.worker).collect();
            let shared = Arc::downgrade(this);
            let task = move || {
                let Some(shared) = shared.upgrade() else { return };
                let lanes = workers.iter().filter_map(|worker| shared.registry.get(worker));
                Self::drain_listed(&shared, &lanes.collect::<Vec<_>>());
            };
            if !this.pool.tasks.spawn(task) {
                Self::drain_listed(this, lanes);
            }
        }
    }

    fn drain_listed(this: &Arc<Self>, lanes: &[Arc<Lane>]) {
        for lane in lanes {
            // Names that came before are seen by the drain, later ones list the
            // lane again.
            let late = mutant(Mutant::ListedClearedLate);
            let early = mutant(Mutant::LeftTakenEarly).then(|| lane.queue.unapplied());
            if !late {
                lane.queue.set_listed(false);
            }
            if let Some(left) = early {
                let mut turn = this.turn(lane);
                let guard = this.drain_most(&mut turn, left, true, pin());
                this.end_event(turn, guard);
            } else if lane.is_dirty() {
                _ = Self::drain_caught(this, lane);
            }
            if late {
                lane.queue.set_listed(false);
            }
        }
    }

    /// Applies what is queued. Returns once everything that was handed in
    /// before is visible, whoever applied it.
    fn drain(&self, lane: &Lane) {
        self.drain_at_most(lane, usize::MAX);
    }

    /// The same of the first `most` names, about. The lane is listed, or
    /// nothing of it stays queued.
    fn drain_at_most(&self, lane: &Lane, most: usize) {
        let _span = Span::drain(lane.worker, || lane.queue.unapplied());
        self.tree.garbage.relieve();
        let mut early = Vec::new();
        if mutant(Mutant::PopUnlocked) {
            lane.queue.take(&mut early);
        }
        let mut turn = self.turn(lane);
        turn.state.batch.append(&mut early);
        let left = lane.queue.unapplied();
        if mutant(Mutant::PartUnlisted) && left > most {
            lane.queue.set_listed(false);
            self.dirty.pop();
        }
        let guard = self.drain_most(&mut turn, left.min(most), left <= most, pin());
        self.end_event(turn, guard);
    }

    /// The same for whoever has the lane's lock and a pin; a long queue is
    /// applied under one pin after the other. What the last of it retired is
    /// handed over by the caller's `end_event`. Names handed in meanwhile may
    /// wait for the next drain: their remover lists the lane anew.
    fn drain_locked(&self, turn: &mut Turn<'_>, guard: Guard) -> Guard {
        let left = turn.lane.queue.unapplied();
        self.drain_most(turn, left, true, guard)
    }

    /// Applies the first `left` names that are queued; whether those are `all`
    /// that were there.
    fn drain_most(
        &self,
        turn: &mut Turn<'_>,
        mut left: usize,
        all: bool,
        mut guard: Guard,
    ) -> Guard {
        let lane = turn.lane;
        // What is not among all names is handed in from now on.
        let since = if left > 0 && all { self.recent_time() } else { 0 };
        while left > 0 {
            let state = &mut *turn.state;
            // A batch that a panic has left comes first.
            if state.batch.is_empty() {
                state.begun += lane.queue.take(&mut state.batch);
            }
            if state.batch.is_empty() {
                break;
            }
            fault(Fault::Popped);
            #[cfg(test)]
            self.fail_if_told();
            let count = state.batch.len();
            let early = mutant(Mutant::AppliedCountedEarly);
            if early {
                lane.queue.note_applied(count);
            }
            let torn = std::mem::replace(&mut turn.torn, true);
            if mutant(Mutant::RoomGivenBackEarly) {
                self.tree.give_back_early(&mut state.holdings, count);
            }
            let unknown = if state.closed || state.poisoned {
                count
            } else {
                self.tree.remove(&mut state.holdings, &state.batch, &guard)
            };
            fault(Fault::Applied);
            let removals = std::mem::take(&mut state.begun);
            if state.closed {
                self.strays.removals(removals, unknown);
            } else {
                lane.figures.add(Figure::Removals, removals);
                lane.figures.add(Figure::RemovedBlocks, count - unknown);
                lane.figures.add(Figure::Unknown, unknown);
                lane.figures.add_batch(count);
            }
            lane.note(&state.holdings);
            turn.torn = torn;
            state.batch.clear();
            if !early {
                lane.queue.note_applied(count);
            }
            state.mark.left = state.mark.left.saturating_sub(count);
            left = left.saturating_sub(count);
            if left == 0 {
                if all {
                    lane.since.store(since, Ordering::Relaxed);
                    state.mark = Mark::default();
                } else {
                    self.move_mark(lane, &mut state.mark);
                }
            } else {
                fault(Fault::DrainGoesOn);
                guard = self.hand_over(state, guard);
            }
        }
        guard
    }

    /// After a drain of a part: if it has come to the mark, what waits has
    /// waited since then at most, and the mark goes behind it. The clock is read
    /// once for as many names as a queue had.
    fn move_mark(&self, lane: &Lane, mark: &mut Mark) {
        // A figure, and so no part of the models' search.
        if cfg!(kvradix_loom) || mark.left > 0 {
            return;
        }
        if mark.at > lane.since.load(Ordering::Relaxed) {
            lane.since.store(mark.at, Ordering::Relaxed);
        }
        // The clock first: names that are not counted are younger.
        mark.at = self.clock.now();
        mark.left = lane.queue.unapplied();
    }

    /// Hands over what was retired and pins anew, having freed what can be.
    fn hand_over(&self, state: &mut LaneState, guard: Guard) -> Guard {
        let sealed = self.tree.hand_over(&mut state.holdings, &guard);
        drop(guard);
        if sealed {
            self.tree.garbage.reclaim();
        }
        pin()
    }

    /// Now, or a little earlier: no clock is read while the alarm is set. 0
    /// where nothing ever waits.
    #[inline]
    fn recent_time(&self) -> u64 {
        if self.pool.tasks.threads() == 0 {
            return 0;
        }
        match self.recent.load(Ordering::Relaxed) {
            0 => self.clock.now(),
            recent => recent,
        }
    }

    pub(crate) fn clear(&self, worker: WorkerId) {
        self.tree.garbage.relieve();
        let Some(lane) = self.registry.get(&worker) else { return self.strays.clear() };
        let mut turn = self.turn(&lane);
        let mut guard = self.drain_locked(&mut turn, pin());
        if turn.state.closed {
            self.strays.clear();
        } else {
            let count = turn.state.holdings.names.count;
            guard = self.let_go_of_all(&mut turn, guard);
            self.welcome_back(&mut turn);
            lane.figures.add(Figure::Clears, 1);
            lane.figures.add(Figure::ClearedBlocks, count);
            lane.note(&turn.state.holdings);
        }
        self.end_event(turn, guard);
    }

    /// Lets go of everything the worker holds, under one pin after the other.
    /// O(what it holds).
    pub(super) fn clear_locked(&self, state: &mut LaneState, guard: Guard) -> Guard {
        let Holdings { names, scratch } = &mut state.holdings;
        let slot = names.slot;
        let mut guard = Some(guard);
        let mut count = 0;
        let mut coming = VecDeque::with_capacity(NODES_AHEAD + 1);
        let mut let_go = |coming: &mut VecDeque<Place>| {
            let pinned = guard.get_or_insert_with(pin);
            // What a node leads to is asked for once the node itself is there.
            if let Some(place) = coming.get(NODES_AHEAD / 2) {
                Names::node_of(*place, pinned).prefetch();
            }
            let Some(place) = coming.pop_front() else { return };
            self.tree.let_go_all(slot, scratch, place, pinned);
            fault(Fault::NodeCleared);
            count += 1;
            if count % CLEAR_BATCH == 0 {
                self.tree.garbage.take(&mut scratch.retired, pinned);
                guard = None;
                self.tree.garbage.reclaim();
            }
        };
        names.let_go_nodes(|place| {
            place.prefetch_node();
            coming.push_back(place);
            if coming.len() > NODES_AHEAD {
                let_go(&mut coming);
            }
        });
        while !coming.is_empty() {
            let_go(&mut coming);
        }
        fault(Fault::NamesForgotten);
        names.forget_all();
        guard.unwrap_or_else(pin)
    }

    pub(crate) fn remove_worker(this: &Arc<Self>, worker: WorkerId) {
        let _span = Span::remove_worker(worker);
        this.tree.garbage.relieve();
        let Some(lane) = this.registry.get(&worker) else { return this.strays.leaving() };
        let mut turn = this.turn(&lane);
        if turn.state.closed {
            return this.strays.leaving();
        }
        let guard = this.drain_locked(&mut turn, pin());
        let count = turn.state.holdings.names.count;
        let guard = this.let_go_of_all(&mut turn, guard);
        fault(Fault::Cleared);
        // Bits first, then the table, then the slot.
        let slot = turn.state.holdings.names.slot;
        this.tree.roster.leave(slot, &this.tree.garbage);
        fault(Fault::OutOfTable);

        // One step: none of it panics. What comes after it can be left out.
        this.tree.retire_slot(&mut turn.state.holdings, slot);
        lane.figures.add(Figure::Leavings, 1);
        lane.figures.add(Figure::LeftBlocks, count);
        turn.state.closed = true;
        this.depart(&lane, &mut turn.state);
        // Names that came before are drained here, as unknown ones; a later
        // remover finds the queue closed.
        let listed = lane.queue.close();
        fault(Fault::Closed);
        let guard = this.drain_locked(&mut turn, guard);
        this.end_event(turn, guard);
        if listed {
            // The list is not to keep what is gone until the alarm goes off.
            Self::send_listed(this);
        }
    }

    /// Takes the lane out of the registry, and its figures along: who adds up
    /// all finds them here or there.
    fn depart(&self, lane: &Arc<Lane>, state: &mut LaneState) {
        if mutant(Mutant::DepartedLate) {
            self.registry.remove_if(&lane.worker, |_| true);
        }
        let mut departed = self.departed.lock(Rank::Departed);
        self.registry.remove_if(&lane.worker, |held| Arc::ptr_eq(held, lane));
        self.tree.give_room_back(&mut state.holdings.scratch);
        departed.take(&lane.figures, &mut state.holdings.scratch);
    }

    /// Every known rank of `id`.
    pub(crate) fn remove_ranks(this: &Arc<Self>, id: u64) {
        for worker in this.workers() {
            if worker.id == id {
                Self::remove_worker(this, worker);
            }
        }
    }

    pub(crate) fn flush(this: &Arc<Self>) {
        let _span = Span::flush();
        // What is listed need not wait for the alarm; nor need the lanes of
        // workers that are gone.
        let mut dirty = Vec::new();
        while let Some(lane) = this.dirty.pop() {
            lane.queue.set_listed(false);
            dirty.push(lane);
        }
        // A lane that panics does not keep the others from their turn.
        let mut drained = Ok(());
        let mut drain = |lane: &Arc<Lane>| {
            if let Err(panic) = Self::drain_caught(this, lane) {
                drained = Err(panic);
            }
        };
        for lane in dirty.drain(..).filter(|lane| lane.is_dirty()) {
            drain(&lane);
        }
        // Lanes that another thread has taken off the list and not drained.
        this.registry.for_each(|_, lane| {
            if lane.is_dirty() {
                dirty.push(lane.clone());
            }
        });
        dirty.iter().for_each(drain);
        if let Err(panic) = drained {
            resume_unwind(panic);
        }
        this.tree.garbage.collect_all();
    }

    pub(crate) fn flush_worker(&self, worker: WorkerId) {
        if let Some(lane) = self.registry.get(&worker)
            && lane.is_dirty()
        {
            self.drain(&lane);
        }
    }

    /// Every known worker's lane.
    pub(super) fn lanes(&self) -> Vec<Arc<Lane>> {
        let mut lanes = Vec::new();
        self.registry.for_each(|_, lane| lanes.push(lane.clone()));
        lanes
    }

    pub(crate) fn workers(&self) -> Vec<WorkerId> {
        self.tree.roster.workers()
    }

    /// Runs `see` on what the worker holds once its queue is applied.
    pub(super) fn with_lane<T>(
        &self,
        worker: WorkerId,
        see: impl FnOnce(&Tree, &Holdings) -> T,
    ) -> Option<T> {
        let lane = self.registry.get(&worker)?;
        let mut turn = self.turn(&lane);
        let guard = self.drain_locked(&mut turn, pin());
        let state = &mut *turn.state;
        drop(self.hand_over(state, guard));
        (state.known && !state.closed && !state.poisoned).then(|| see(&self.tree, &state.holdings))
    }

    pub(crate) fn has(&self, worker: WorkerId, name: SequenceHash) -> bool {
        let has = |tree: &Tree, held: &Holdings| held.names.resolve(tree, name, &pin()).is_some();
        self.with_lane(worker, has).unwrap_or(false)
    }

    pub(crate) fn held(&self, worker: WorkerId) -> usize {
        self.with_lane(worker, |_, holdings| holdings.names.count).unwrap_or(0)
    }

    /// Adds up the lanes' figures. Takes a shard of the registry after the
    /// other, and no lane's lock.
    pub(crate) fn stats(&self) -> Stats {
        let departed = self.departed.lock(Rank::Departed);
        let mut sums = *departed;
        let (mut workers, mut pending, mut poisoned, mut oldest) = (0, 0, 0, u64::MAX);
        self.registry.for_each(|_, lane| {
            sums.add(&lane.figures);
            workers += 1;
            poisoned += lane.poisoned.load(Ordering::Relaxed);
            let unapplied = lane.queue.unapplied() as u64;
            if unapplied > 0 {
                pending += unapplied;
                let since = lane.since.load(Ordering::Relaxed);
                oldest = oldest.min(if since == 0 { u64::MAX } else { since });
            }
        });
        drop(departed);
        sums.add_mended(&self.tree.mended.lock(Rank::Retired));
        let mut events = sums.events();
        let stray_names = self.strays.add_to(&mut events);
        let retired_bytes = self.tree.garbage.bytes() as u64;
        // Beside running events a sum may be off, but is never told as above
        // what the limit counts, which is never below what the tree has.
        let most = self.tree.limits.counted().map_or(u64::MAX, |used| used as u64);
        Stats {
            workers,
            poisoned_workers: poisoned,
            tree_blocks: sums.now(Figure::TreeBlocks).min(most),
            held_blocks: sums.now(Figure::Names),
            lookup_entries: sums.now(Figure::Entries),
            nodes: sums.now(Figure::Nodes),
            pending_removals: pending,
            pending_age_ns: self.clock.now().saturating_sub(oldest),
            refused_blocks: events.refused.total().blocks,
            limited_blocks: events.refused.limited().blocks,
            unknown_removals: sums.count(Figure::Unknown) + stray_names,
            retired_bytes,
            memory: Memory {
                tree_bytes: sums.now(Figure::TreeBytes),
                lookup_bytes: self.tree.lookup.bytes() as u64,
                worker_bytes: sums.now(Figure::LaneBytes),
                retired_bytes,
            },
            drains: sums.drains(),
            events,
        }
    }
}

/// What a removal leaves to do once its names are queued.
enum Next {
    /// Nothing: the lane is on the list, and who takes it off sees the names.
    Wait,
    /// They are to be applied here and now.
    Drain(Arc<Lane>),
    /// The lane may have to be listed, or handed to the pool.
    Tell { lane: Arc<Lane>, listed: bool, pending: usize },
}

/// A slot that is given back unless a lane takes it.
struct Seat<'a> {
    tree: &'a Tree,
    slot: Option<u32>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot
            && !omitted(Omission::SlotKept)
        {
            self.tree.roster.leave_unused(slot, &self.tree.garbage);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Index;

    impl Shared {
        /// Changes what lanes that are gone have left in the counts.
        pub(in crate::tree) fn miscount(&self, figure: Figure, by: i64) {
            self.departed.lock(Rank::Departed).miscount(figure, by);
        }

        pub(super) fn fail_if_told(&self) {
            let order = Ordering::SeqCst;
            let told = self.failing_drains.try_update(order, order, |left| left.checked_sub(1));
            assert!(told.is_err(), "a drain that was told to fail");
        }
    }

    /// Between a new worker's lane and its first store an export may come.
    #[test]
    fn a_worker_whose_first_store_has_not_begun_is_not_exported() {
        let (index, worker) = (Index::builder().drain_threads(0).build(), WorkerId::new(1, 0));
        let lane = index.shared().join(worker);
        assert!(index.shared().export(worker).is_none());
        assert!(!lane.state.lock(Rank::Lane).known);
        let block = Block { sequence: SequenceHash(1), local: crate::LocalHash(1) };
        index.store(worker, None, &[block]).unwrap();
        index.clear(worker);
        assert_eq!(index.shared().export(worker), Some(Vec::new()), "known, and holds nothing");
    }

    /// Fails if tables of slots that others took the place of wait for an
    /// event that has something else to do.
    #[cfg(feature = "snapshot")]
    #[test]
    fn workers_that_a_snapshot_knew_leave_no_old_tables_behind() {
        let index = Index::builder().drain_threads(0).build();
        for worker in 0..3_000 {
            index.shared().know(WorkerId::new(worker, 0));
            let retired = index.shared().tree.garbage.bytes();
            assert!(retired < 4 << 20, "{retired} bytes retired by {worker} workers");
        }
        index.check();
        assert_eq!(index.workers().len(), 3_000);
    }

    /// Fails if the task has the lane: then a pool that lags behind keeps the
    /// memory of everybody who has left meanwhile.
    #[test]
    fn a_task_that_waits_keeps_nothing_of_a_worker_that_has_left() {
        let index = Index::builder().drain_threads(1).drain_threshold(8).build();
        let shared = index.shared();
        let held_up = Arc::new(());
        let held = Arc::downgrade(&held_up);
        let blocked = move || {
            while held.strong_count() > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        assert!(shared.pool.tasks.spawn(blocked), "there is a thread");
        // One whose removals have a task of their own, one whose wait for the
        // alarm, and one whose were sent on by it.
        let lanes = [(8, false), (1, false), (1, true)].map(|(removed, ticked)| {
            let worker = WorkerId::new(removed, u32::from(ticked));
            let block = |n| Block { sequence: SequenceHash(n), local: LocalHash(n) };
            let blocks: Vec<Block> = (0..16).map(block).collect();
            index.store(worker, None, &blocks).unwrap();
            let names: Vec<SequenceHash> = (0..removed).map(SequenceHash).collect();
            index.remove(worker, &names);
            if ticked {
                Shared::tick(shared);
            }
            let lane = Arc::downgrade(&shared.registry.get(&worker).expect("known"));
            index.remove_worker(worker);
            lane
        });
        assert!(lanes.iter().all(|lane| lane.upgrade().is_none()), "a lane is kept");
        drop(held_up);
    }

    /// Fails without the catch in `drain_caught` (the process ends) and
    /// without the batch that stays in the lane (names 8 to 15 stay held).
    #[test]
    fn a_panic_in_a_drain_task_loses_no_removal_and_leaves_the_index_at_work() {
        let index = Index::builder().drain_threads(1).drain_threshold(8).build();
        let (worker, shared) = (WorkerId::new(1, 0), index.shared());
        let block = |n| Block { sequence: SequenceHash(n), local: LocalHash(n) };
        let blocks: Vec<Block> = (0..16).map(block).collect();
        index.store(worker, None, &blocks).unwrap();
        shared.failing_drains.store(3, Ordering::SeqCst);
        let names: Vec<SequenceHash> = (8..16).map(SequenceHash).collect();
        index.remove(worker, &names);
        let query: Vec<LocalHash> = (0..16).map(LocalHash).collect();
        // Without a flush or a further event: the lane is listed again.
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while index.matches(&query).depth_of(worker) != 8 {
            assert!(std::time::Instant::now() < deadline, "{:?}", index.stats());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(shared.failing_drains.load(Ordering::SeqCst), 0, "all three failed");
        assert_eq!((index.held(worker), index.stats().pending_removals), (8, 0));
        index.store(worker, Some(SequenceHash(7)), &blocks[8..]).unwrap();
        assert_eq!(index.matches(&query).depth_of(worker), 16);
        index.check();
    }
}

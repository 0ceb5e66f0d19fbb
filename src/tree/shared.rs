//! The index as its threads share it: the tree, the lanes and the pool.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::lane::{Handful, Lane, LaneState};
use super::repeated::first_repeated;
use super::slots::Roster;
use super::turn::Turn;
use super::{Holdings, Refusal, Tree, TreeConfig};
use crate::sync::rank::Rank;
use crate::sync::{
    Alarm, Arc, AtomicBool, Counter, Fault, Guard, Mutant, Omission, Ordering, SegQueue,
    ShardedMap, TaskPool, fault, mutant, omitted, pin,
};
use crate::{Block, LocalHash, Matches, SequenceHash, Stats, StoreError, WorkerId};

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

/// Names at which a drain applies what it has popped.
const DRAIN_BATCH: usize = 512;
/// Lanes that one task of the pool goes through.
const LANES_PER_TASK: usize = 16;
/// Nodes that a clear lets go under one pin.
const CLEAR_BATCH: usize = 64;

pub(crate) struct Shared {
    pub(crate) tree: Tree,
    registry: ShardedMap<WorkerId, Arc<Lane>>,
    /// Lanes with removals that nobody may have looked at yet.
    dirty: SegQueue<Arc<Lane>>,
    /// Whether the alarm is set and has yet to go off.
    armed: AtomicBool,
    pool: Arc<Threads>,
    config: Config,
    refused_blocks: Counter,
    /// Those of them that were refused for a limit.
    limited_blocks: Counter,
    unknown_removals: Counter,
    /// How many of the next drains panic between their pop and their apply.
    #[cfg(test)]
    failing_drains: Counter,
}

impl Shared {
    pub(crate) fn new(config: Config, pool: Arc<Threads>) -> Self {
        Self {
            tree: Tree::new(config.tree),
            registry: ShardedMap::new(config.registry_shards, Rank::Registry),
            dirty: SegQueue::new(),
            armed: AtomicBool::new(false),
            pool,
            config,
            refused_blocks: Counter::new(0),
            limited_blocks: Counter::new(0),
            unknown_removals: Counter::new(0),
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
        if let Err(error) = stored {
            self.refused_blocks.fetch_add(blocks.len() as u64, Ordering::Relaxed);
            if matches!(error, StoreError::IndexFull { .. } | StoreError::WorkerFull { .. }) {
                self.limited_blocks.fetch_add(blocks.len() as u64, Ordering::Relaxed);
            }
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
        if self.tree.limits.all_too_small(blocks.len()) {
            return Err(self.oversized(worker, blocks.len()));
        }
        if let Some(block) = blocks.iter().find(|block| Some(block.sequence) == parent) {
            return repeated(block.sequence);
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
            let stored = self.tree.store(&mut turn.state.holdings, parent, blocks, &guard);
            fault(Fault::StoreEnds);
            self.end_event(turn, guard);
            return match (stored, parent) {
                (Err(Refusal::Full(limit)), _) => Err(full(limit)),
                (Err(Refusal::NoParent), Some(parent)) => Err(no_parent(parent)),
                _ => Ok(()),
            };
        }
    }

    /// A batch that no limit has room for.
    #[cold]
    fn oversized(&self, worker: WorkerId, blocks: usize) -> StoreError {
        let held = self.registry.get(&worker).map_or(0, |lane| lane.figures.get().0);
        self.tree.limits.error(worker, self.tree.limits.oversized(blocks, held as usize))
    }

    /// The worker's lane, made if there is none.
    fn join(&self, worker: WorkerId) -> Arc<Lane> {
        let make = || {
            let mut seat = Seat { roster: &self.tree.roster, slot: None };
            let slot = *seat.slot.insert(self.tree.roster.join(worker));
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

    /// After an event: what it counted is written down, what it retired is
    /// handed over, and what can be freed by now is freed.
    fn end_event(&self, mut turn: Turn<'_>, guard: Guard) {
        fault(Fault::EventEnds);
        turn.lane.note(&turn.state.holdings);
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
        let Some(lane) = this.registry.get(&worker) else {
            this.count_unknown(names.len());
            return;
        };
        // Raised before the names are there, so that it is never below them.
        let pending = lane.unapplied.fetch_add(names.len(), Ordering::Relaxed) + names.len();
        for names in names.chunks(Handful::MOST) {
            lane.queue.push(Handful::new(names));
        }
        if this.pool.tasks.threads() == 0 {
            this.drain(&lane);
            return;
        }
        // AcqRel: pairs with the swaps in `drain_listed`, `flush` and
        // `remove_worker`.
        // Whichever comes second sees what the other did before: they our
        // names, or we that the lane is off the list, or closed.
        let listed = lane.listed.swap(true, Ordering::AcqRel);
        if lane.closed.load(Ordering::Acquire) && !mutant(Mutant::RemoveIntoClosed) {
            this.drain(&lane);
            return;
        }
        if !listed {
            this.dirty.push(lane.clone());
            Self::arm(this);
        }
        if pending > this.config.max_pending {
            this.drain(&lane);
        } else if pending >= this.config.drain_threshold {
            Self::schedule(this, lane);
        }
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
        let (shared, of_task) = (Arc::downgrade(this), lane.clone());
        let task = move || {
            let late = mutant(Mutant::ScheduledClearedLate);
            if !late {
                of_task.scheduled.swap(false, acq_rel);
            }
            if let Some(shared) = shared.upgrade() {
                _ = Self::drain_caught(&shared, &of_task);
            }
            if late {
                of_task.scheduled.swap(false, Ordering::AcqRel);
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
        if drained.is_err() && !lane.listed.swap(true, Ordering::AcqRel) {
            this.dirty.push(lane.clone());
            Self::arm(this);
        }
        drained
    }

    /// Has the alarm go off a delay from now, unless it will before.
    fn arm(this: &Arc<Self>) {
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
        Self::send_listed(this);
        if late {
            this.armed.swap(false, Ordering::AcqRel);
        }
    }

    /// Every lane that is listed goes to the pool.
    fn send_listed(this: &Arc<Self>) {
        let mut lanes = Vec::new();
        while let Some(lane) = this.dirty.pop() {
            lanes.push(lane);
        }
        for lanes in lanes.chunks(LANES_PER_TASK) {
            let (shared, of_task) = (Arc::downgrade(this), lanes.to_vec());
            let task = move || {
                if let Some(shared) = shared.upgrade() {
                    Self::drain_listed(&shared, &of_task);
                }
            };
            if !this.pool.tasks.spawn(task) {
                Self::drain_listed(this, lanes);
            }
        }
    }

    fn drain_listed(this: &Arc<Self>, lanes: &[Arc<Lane>]) {
        for lane in lanes {
            // AcqRel: pairs with the swap in `remove`: names that came before
            // are seen by the drain, later ones list the lane again.
            let late = mutant(Mutant::ListedClearedLate);
            let early =
                mutant(Mutant::LeftTakenEarly).then(|| lane.unapplied.load(Ordering::Acquire));
            if !late {
                let relaxed = mutant(Mutant::ListedRelaxed);
                let acq_rel = if relaxed { Ordering::Relaxed } else { Ordering::AcqRel };
                lane.listed.swap(false, acq_rel);
            }
            if let Some(left) = early {
                let mut turn = this.turn(lane);
                let guard = this.drain_most(&mut turn, left, pin());
                this.end_event(turn, guard);
            } else if lane.is_dirty() {
                _ = Self::drain_caught(this, lane);
            }
            if late {
                lane.listed.swap(false, Ordering::AcqRel);
            }
        }
    }

    /// Applies what is queued. Returns once everything that was handed in
    /// before is visible, whoever applied it.
    fn drain(&self, lane: &Lane) {
        self.tree.garbage.relieve();
        let early = mutant(Mutant::PopUnlocked).then(|| lane.queue.pop()).flatten();
        let mut turn = self.turn(lane);
        early.iter().for_each(|names| turn.state.batch.extend_from_slice(names.names()));
        let guard = self.drain_locked(&mut turn, pin());
        self.end_event(turn, guard);
    }

    /// The same for whoever has the lane's lock and a pin; a long queue is
    /// applied under one pin after the other. What the last of it retired is
    /// handed over by the caller's `end_event`. Names handed in meanwhile may
    /// wait for the next drain: their remover lists the lane anew.
    fn drain_locked(&self, turn: &mut Turn<'_>, guard: Guard) -> Guard {
        // Acquire: whoever handed names in before has counted them before.
        let left = turn.lane.unapplied.load(Ordering::Acquire);
        self.drain_most(turn, left, guard)
    }

    /// Applies the first `left` names that are queued, or all.
    fn drain_most(&self, turn: &mut Turn<'_>, mut left: usize, mut guard: Guard) -> Guard {
        let lane = turn.lane;
        while left > 0 {
            let state = &mut *turn.state;
            // A batch that a panic has left comes first.
            while state.batch.len() < left.min(DRAIN_BATCH) {
                let Some(handful) = lane.queue.pop() else { break };
                state.batch.extend_from_slice(handful.names());
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
                lane.unapplied.fetch_sub(count, Ordering::Release);
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
            self.count_unknown(unknown);
            lane.note(&state.holdings);
            turn.torn = torn;
            state.batch.clear();
            // Release: pairs with the acquire of a flush that finds nothing
            // left to do.
            if !early {
                lane.unapplied.fetch_sub(count, Ordering::Release);
            }
            left = left.saturating_sub(count);
            if left > 0 {
                fault(Fault::DrainGoesOn);
                guard = self.hand_over(state, guard);
            }
        }
        guard
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

    fn count_unknown(&self, names: usize) {
        if names > 0 {
            self.unknown_removals.fetch_add(names as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn clear(&self, worker: WorkerId) {
        self.tree.garbage.relieve();
        let Some(lane) = self.registry.get(&worker) else { return };
        let mut turn = self.turn(&lane);
        let mut guard = self.drain_locked(&mut turn, pin());
        if !turn.state.closed {
            guard = self.let_go_of_all(&mut turn, guard);
            self.welcome_back(&mut turn);
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
        names.let_go_nodes(|place| {
            let pinned = guard.get_or_insert_with(pin);
            self.tree.let_go_all(slot, scratch, place, pinned);
            fault(Fault::NodeCleared);
            count += 1;
            if count % CLEAR_BATCH == 0 {
                self.tree.garbage.take(&mut scratch.retired, pinned);
                guard = None;
                self.tree.garbage.reclaim();
            }
        });
        fault(Fault::NamesForgotten);
        names.forget_all();
        guard.unwrap_or_else(pin)
    }

    pub(crate) fn remove_worker(this: &Arc<Self>, worker: WorkerId) {
        this.tree.garbage.relieve();
        let Some(lane) = this.registry.get(&worker) else { return };
        let mut turn = this.turn(&lane);
        if turn.state.closed {
            return;
        }
        let guard = this.drain_locked(&mut turn, pin());
        let guard = this.let_go_of_all(&mut turn, guard);
        fault(Fault::Cleared);
        // Bits first, then the table, then the slot.
        let slot = turn.state.holdings.names.slot;
        this.tree.roster.leave(slot);
        fault(Fault::OutOfTable);

        // One step: none of it panics. What comes after it can be left out.
        this.tree.retire_slot(&mut turn.state.holdings, slot);
        this.tree.close_books(&mut turn.state.holdings.scratch);
        turn.state.closed = true;
        this.registry.remove_if(&worker, |held| Arc::ptr_eq(held, &lane));
        // Release: pairs with the acquire in `remove`, if the swap there comes
        // after the one here.
        lane.closed.store(true, Ordering::Release);
        // AcqRel: pairs with the swap in `remove`. Names that came before it
        // are drained here, as unknown ones; a later remover sees `closed`.
        fault(Fault::Closed);
        let relaxed = mutant(Mutant::ClosedRelaxed);
        let order = if relaxed { Ordering::Relaxed } else { Ordering::AcqRel };
        let listed = lane.listed.swap(true, order);
        let guard = this.drain_locked(&mut turn, guard);
        this.end_event(turn, guard);
        if listed {
            // The list is not to keep what is gone until the alarm goes off.
            Self::send_listed(this);
        }
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
        // What is listed need not wait for the alarm; nor need the lanes of
        // workers that are gone.
        let mut dirty = Vec::new();
        while let Some(lane) = this.dirty.pop() {
            // AcqRel: as in `drain_listed`.
            lane.listed.swap(false, Ordering::AcqRel);
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
        let mut workers = Vec::new();
        self.registry.for_each(|worker, _| workers.push(*worker));
        workers.sort_unstable();
        workers
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
        (!state.closed && !state.poisoned).then(|| see(&self.tree, &state.holdings))
    }

    pub(crate) fn has(&self, worker: WorkerId, name: SequenceHash) -> bool {
        let has = |tree: &Tree, held: &Holdings| held.names.resolve(tree, name, &pin()).is_some();
        self.with_lane(worker, has).unwrap_or(false)
    }

    pub(crate) fn held(&self, worker: WorkerId) -> usize {
        self.with_lane(worker, |_, holdings| holdings.names.count).unwrap_or(0)
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut all = *self.tree.strays.lock(Rank::Retired);
        let (mut workers, mut held, mut pending, mut poisoned) = (0, 0, 0, 0);
        for lane in self.lanes() {
            let (names, delta) = lane.figures.get();
            all.add(delta);
            workers += 1;
            held += names;
            poisoned += lane.figures.poisoned.load(Ordering::Relaxed);
            pending += lane.unapplied.load(Ordering::Relaxed) as u64;
        }
        // Shares are written one by one, so beside running events a sum may
        // be off, but is never told as below nothing, nor above a limit that
        // the tree keeps.
        let count = |sum: i64| sum.max(0) as u64;
        let most = self.tree.limits.of_tree().unwrap_or(u64::MAX);
        Stats {
            workers,
            poisoned_workers: poisoned,
            tree_blocks: count(all.tree_blocks).min(most),
            held_blocks: held,
            lookup_entries: count(all.entries),
            nodes: count(all.nodes),
            pending_removals: pending,
            refused_blocks: self.refused_blocks.load(Ordering::Relaxed),
            limited_blocks: self.limited_blocks.load(Ordering::Relaxed),
            unknown_removals: self.unknown_removals.load(Ordering::Relaxed),
            retired_bytes: self.tree.garbage.bytes() as u64,
        }
    }
}

/// A slot that is given back unless a lane takes it.
struct Seat<'a> {
    roster: &'a Roster,
    slot: Option<u32>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot
            && !omitted(Omission::SlotKept)
        {
            self.roster.leave_unused(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Index;

    impl Shared {
        pub(super) fn fail_if_told(&self) {
            let order = Ordering::SeqCst;
            let told = self.failing_drains.try_update(order, order, |left| left.checked_sub(1));
            assert!(told.is_err(), "a drain that was told to fail");
        }
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

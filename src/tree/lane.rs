//! Lanes: one per worker, through which its events go in order.
//!
//! `store`, `clear` and `remove_worker` lock the lane and first apply what is
//! queued; removals are queued without the lane's lock. A drain holds the lock from
//! its first pop to its last publish, so whoever has the lock sees either all
//! or nothing of another drain.

use super::Holdings;
use super::figures::Figures;
use super::names::Names;
use super::queue::Queue;
use super::scratch::Scratch;
use crate::sync::{AtomicBool, Counter, Fold, Mutant, Mutex, mutant};
use crate::{SequenceHash, WorkerId};

/// One worker's events and holdings.
pub(super) struct Lane {
    pub(super) worker: WorkerId,
    /// Removed names, in order.
    pub(super) queue: Queue,
    /// When the oldest of those that wait was handed in, or earlier; a figure.
    /// Renewed by who applies all that is there, and by `Mark`.
    pub(super) since: Counter,
    /// Whether a task of the pool is on its way to this lane.
    pub(super) scheduled: AtomicBool,
    pub(super) state: Mutex<LaneState>,
    pub(super) figures: Figures,
    /// Whether the lane is poisoned, as 0 or 1; a figure.
    pub(super) poisoned: Counter,
}

/// What the lane's lock guards.
pub(super) struct LaneState {
    pub(super) holdings: Holdings,
    /// Names popped and not yet applied; what a drain that panicked leaves.
    pub(super) batch: Vec<SequenceHash>,
    /// How many removals begin in it.
    pub(super) begun: usize,
    /// Set by drains of a part, void once all was applied.
    pub(super) mark: Mark,
    /// Whether a store of the worker was ever accepted, or left half done by a
    /// panic: before that, nobody knows the worker.
    pub(super) known: bool,
    /// Whether the worker was removed: the lane takes no more events, and a
    /// store begins anew at the registry.
    pub(super) closed: bool,
    /// Whether an event of the worker has panicked half done: what the lane
    /// knows is not trusted, and it takes no event until it is healed.
    pub(super) poisoned: bool,
}

/// A mark behind the last name of a queue that is drained in parts: what comes
/// to the front once these names are applied was handed in after it.
#[derive(Default)]
pub(super) struct Mark {
    /// Names in front of it that are not applied yet.
    pub(super) left: usize,
    /// When it was set; 0 for no mark.
    pub(super) at: u64,
}

impl Lane {
    pub(super) fn new(worker: WorkerId, slot: u32, fold: Fold) -> Self {
        Self {
            worker,
            queue: Queue::new(),
            since: Counter::new(0),
            scheduled: AtomicBool::new(false),
            state: Mutex::new(LaneState {
                holdings: Holdings {
                    names: Names::new(slot, fold),
                    scratch: Scratch { slot, ..Scratch::default() },
                },
                batch: Vec::new(),
                begun: 0,
                mark: Mark::default(),
                known: false,
                closed: false,
                poisoned: false,
            }),
            figures: Figures::default(),
            poisoned: Counter::new(0),
        }
    }

    /// Writes down what the worker has and how its events changed the tree.
    #[inline]
    pub(super) fn note(&self, holdings: &Holdings) {
        let Holdings { names, scratch } = holdings;
        self.figures.set(names.count, scratch, size_of::<Self>() + names.bytes());
    }

    /// Whether removals wait.
    pub(super) fn is_dirty(&self) -> bool {
        if mutant(Mutant::FlushAsksTheQueue) {
            return !self.queue.is_empty();
        }
        self.queue.unapplied() > 0
    }
}

impl LaneState {
    /// Gives back what a large event made the buffers grow to: a fleet has
    /// many lanes, and few of them are at work.
    pub(super) fn slim(&mut self) {
        self.holdings.scratch.slim();
        if self.batch.is_empty() {
            slim(&mut self.batch);
        }
    }
}

/// Elements for which an idle buffer keeps room.
const KEPT: usize = 64;

/// Empties a buffer, keeping at most so much.
pub(super) fn slim<T>(buffer: &mut Vec<T>) {
    buffer.clear();
    buffer.shrink_to(KEPT);
}

//! Lanes: one per worker, through which its events go in order.
//!
//! `store`, `clear` and `remove_worker` lock the lane and first apply what is
//! queued; removals are queued without the lock. A drain holds the lock from
//! its first pop to its last publish, so whoever has the lock sees either all
//! or nothing of another drain.

use super::Holdings;
use super::names::Names;
use super::scratch::{Delta, Scratch};
use crate::sync::{
    AtomicBool, AtomicUsize, Counter, Fold, Mutant, Mutex, Ordering, SegQueue, mutant,
};
use crate::{SequenceHash, WorkerId};

/// One worker's events and holdings.
pub(super) struct Lane {
    pub(super) worker: WorkerId,
    /// Removed names, in order.
    pub(super) queue: SegQueue<Handful>,
    /// Names handed in and not yet applied: raised before a name is queued,
    /// lowered after its removal is published.
    pub(super) unapplied: AtomicUsize,
    /// Whether the lane is in the list that the alarm goes through.
    pub(super) listed: AtomicBool,
    /// Whether a task of the pool is on its way to this lane.
    pub(super) scheduled: AtomicBool,
    /// Whether the worker was removed; see `LaneState::closed`.
    pub(super) closed: AtomicBool,
    pub(super) state: Mutex<LaneState>,
    pub(super) figures: Figures,
}

/// A few names, so that the queue's work is not done for each.
pub(super) struct Handful {
    count: usize,
    names: [SequenceHash; Handful::MOST],
}

impl Handful {
    pub(super) const MOST: usize = 8;

    /// `names`, at most `MOST`.
    pub(super) fn new(names: &[SequenceHash]) -> Self {
        let mut handful = Self { count: names.len(), names: Default::default() };
        handful.names[..names.len()].copy_from_slice(names);
        handful
    }

    pub(super) fn names(&self) -> &[SequenceHash] {
        &self.names[..self.count]
    }
}

/// What the lane's lock guards.
pub(super) struct LaneState {
    pub(super) holdings: Holdings,
    /// Names popped and not yet applied; what a drain that panicked leaves.
    pub(super) batch: Vec<SequenceHash>,
    /// Whether the worker was removed: the lane takes no more events, and a
    /// store begins anew at the registry.
    pub(super) closed: bool,
    /// Whether an event of the worker has panicked half done: what the lane
    /// knows is not trusted, and it takes no event until it is healed.
    pub(super) poisoned: bool,
}

/// The lane's share of the index's counts, written under its lock, read by
/// anybody.
#[derive(Default)]
pub(super) struct Figures {
    names: Counter,
    tree_blocks: Counter,
    nodes: Counter,
    entries: Counter,
    /// Whether the lane is poisoned, as 0 or 1.
    pub(super) poisoned: Counter,
}

impl Lane {
    pub(super) fn new(worker: WorkerId, slot: u32, fold: Fold) -> Self {
        Self {
            worker,
            queue: SegQueue::new(),
            unapplied: AtomicUsize::new(0),
            listed: AtomicBool::new(false),
            scheduled: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            state: Mutex::new(LaneState {
                holdings: Holdings {
                    names: Names::new(slot, fold),
                    scratch: Scratch { slot, ..Scratch::default() },
                },
                batch: Vec::new(),
                closed: false,
                poisoned: false,
            }),
            figures: Figures::default(),
        }
    }

    /// Writes down the lane's share of the counts.
    #[inline]
    pub(super) fn note(&self, holdings: &Holdings) {
        self.figures.set(holdings.names.count, holdings.scratch.delta);
    }

    /// Whether removals wait.
    pub(super) fn is_dirty(&self) -> bool {
        // Acquire: pairs with the release that lowered it, after the publish.
        if mutant(Mutant::FlushAsksTheQueue) {
            return !self.queue.is_empty();
        }
        self.unapplied.load(Ordering::Acquire) > 0
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

impl Figures {
    /// Writes the lane's share down.
    pub(super) fn set(&self, names: usize, delta: Delta) {
        self.names.store(names as u64, Ordering::Relaxed);
        self.tree_blocks.store(delta.tree_blocks as u64, Ordering::Relaxed);
        self.nodes.store(delta.nodes as u64, Ordering::Relaxed);
        self.entries.store(delta.entries as u64, Ordering::Relaxed);
    }

    /// The names, and the rest.
    pub(super) fn get(&self) -> (u64, Delta) {
        let delta = Delta {
            tree_blocks: self.tree_blocks.load(Ordering::Relaxed) as i64,
            nodes: self.nodes.load(Ordering::Relaxed) as i64,
            entries: self.entries.load(Ordering::Relaxed) as i64,
        };
        (self.names.load(Ordering::Relaxed), delta)
    }
}

impl Delta {
    pub(super) fn add(&mut self, other: Delta) {
        self.tree_blocks += other.tree_blocks;
        self.nodes += other.nodes;
        self.entries += other.entries;
    }
}

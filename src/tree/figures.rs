//! Figures: what a lane's events have come to and what its worker keeps.
//!
//! They are written under the lane's lock, beside what the event changes
//! anyway, and read by anybody without it: counting adds no write that threads
//! share. Over all lanes, and those that are gone, they add up to the index's.

use super::mend::Mended;
use super::scratch::{Delta, Scratch};
use crate::stats::{BATCH_SIZES, DrainCounts, EventCounts};
use crate::sync::{Counter, Ordering};

/// One of the figures.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum Figure {
    // What there is now: this lane's signed share of it.
    Names,
    TreeBlocks,
    Nodes,
    Entries,
    TreeBytes,
    LaneBytes,
    // What there was since the lane was made.
    Stores,
    StoredNew,
    StoredAgain,
    Removals,
    RemovedBlocks,
    Unknown,
    Clears,
    ClearedBlocks,
    Leavings,
    LeftBlocks,
    LostBlocks,
    /// The first of `BATCH_SIZES` figures: batches of so many names.
    Batches,
}

const FIGURES: usize = Figure::Batches as usize + BATCH_SIZES;

/// The figures of one lane.
pub(super) struct Figures([Counter; FIGURES]);

/// Figures of several lanes added up; signed ones wrap.
#[derive(Clone, Copy)]
pub(super) struct Sums([u64; FIGURES]);

impl Figures {
    /// Raises a count. Under the lane's lock.
    #[inline]
    pub(super) fn add(&self, figure: Figure, count: usize) {
        self.raise(figure as usize, count as u64);
    }

    /// Counts a batch of so many names, at least one. Under the lane's lock.
    #[inline]
    pub(super) fn add_batch(&self, names: usize) {
        self.raise(Figure::Batches as usize + DrainCounts::size_of_batch(names), 1);
    }

    /// Writes down what there is now. Under the lane's lock.
    #[inline]
    pub(super) fn set(&self, names: usize, scratch: &Scratch, lane_bytes: usize) {
        let Delta { tree_blocks, nodes, entries } = scratch.delta;
        let set = |figure: Figure, value: u64| {
            self.0[figure as usize].store(value, Ordering::Relaxed);
        };
        set(Figure::Names, names as u64);
        set(Figure::TreeBlocks, tree_blocks as u64);
        set(Figure::Nodes, nodes as u64);
        set(Figure::Entries, entries as u64);
        set(Figure::TreeBytes, scratch.retired.balance as u64);
        set(Figure::LaneBytes, lane_bytes as u64);
    }

    /// Names that the lane's worker has.
    pub(super) fn names(&self) -> u64 {
        self.0[Figure::Names as usize].load(Ordering::Relaxed)
    }

    #[inline]
    fn raise(&self, at: usize, by: u64) {
        // Not a read-modify-write: only the holder of the lane's lock writes.
        let count = self.0[at].load(Ordering::Relaxed);
        self.0[at].store(count.wrapping_add(by), Ordering::Relaxed);
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::new(0)))
    }
}

impl Sums {
    /// Those of no lane, in a tree that has so many bytes to begin with.
    pub(super) fn of_none(tree_bytes: usize) -> Self {
        let mut sums = [0; FIGURES];
        sums[Figure::TreeBytes as usize] = tree_bytes as u64;
        Self(sums)
    }

    /// Adds a lane's figures.
    pub(super) fn add(&mut self, figures: &Figures) {
        for (sum, figure) in self.0.iter_mut().zip(&figures.0) {
            *sum = sum.wrapping_add(figure.load(Ordering::Relaxed));
        }
    }

    /// Takes over the figures of a lane that is leaving and holds nothing any
    /// more. Under the lane's lock.
    pub(super) fn take(&mut self, figures: &Figures, scratch: &mut Scratch) {
        figures.set(0, scratch, 0);
        self.add(figures);
        scratch.delta = Delta::default();
        scratch.settled = 0;
        scratch.retired.balance = 0;
    }

    #[cfg(test)]
    pub(super) fn miscount(&mut self, figure: Figure, by: i64) {
        let sum = &mut self.0[figure as usize];
        *sum = sum.wrapping_add(by as u64);
    }

    /// Adds what mending has changed.
    pub(super) fn add_mended(&mut self, mended: &Mended) {
        let Mended { entries, tree_bytes } = *mended;
        for (figure, share) in [(Figure::Entries, entries), (Figure::TreeBytes, tree_bytes)] {
            let sum = &mut self.0[figure as usize];
            *sum = sum.wrapping_add(share as u64);
        }
    }

    /// A count.
    pub(super) fn count(&self, figure: Figure) -> u64 {
        self.0[figure as usize]
    }

    /// A figure made of signed shares. They are written one by one, so beside
    /// running events the sum may be off, but is never told as below nothing.
    pub(super) fn now(&self, figure: Figure) -> u64 {
        (self.count(figure) as i64).max(0) as u64
    }

    /// The accepted events; refused and stray ones are counted elsewhere.
    pub(super) fn events(&self) -> EventCounts {
        EventCounts {
            stores: self.count(Figure::Stores),
            // The parts are counted, so that neither they nor this ever fall.
            stored_blocks: self.count(Figure::StoredNew) + self.count(Figure::StoredAgain),
            stored_again: self.count(Figure::StoredAgain),
            removals: self.count(Figure::Removals),
            removed_blocks: self.count(Figure::RemovedBlocks),
            clears: self.count(Figure::Clears),
            cleared_blocks: self.count(Figure::ClearedBlocks),
            leavings: self.count(Figure::Leavings),
            left_blocks: self.count(Figure::LeftBlocks),
            lost_blocks: self.count(Figure::LostBlocks),
            ..EventCounts::default()
        }
    }

    /// The drains.
    pub(super) fn drains(&self) -> DrainCounts {
        DrainCounts {
            names: self.count(Figure::RemovedBlocks) + self.count(Figure::Unknown),
            batches: std::array::from_fn(|size| self.0[Figure::Batches as usize + size]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who adds figures up may read the first of them before an event counts
    /// and the others after it.
    #[test]
    fn counts_that_are_read_while_an_event_counts_do_not_fall() {
        let figures = Figures::default();
        let sums = || {
            let mut sums = Sums::of_none(0);
            sums.add(&figures);
            sums
        };
        figures.add(Figure::StoredNew, 5);
        let before = sums();
        figures.add(Figure::StoredAgain, 5);
        let after = sums();
        for read in 0..=FIGURES {
            let torn = |at| if at < read { before.0[at] } else { after.0[at] };
            let (then, now) = (before.events(), Sums(std::array::from_fn(torn)).events());
            let new = |events: EventCounts| events.stored_blocks - events.stored_again;
            assert!(then.stored_blocks <= now.stored_blocks, "{then:?}, then {now:?}");
            assert!(new(then) <= new(now), "{then:?}, then {now:?}");
        }
    }
}

//! What an index says of itself.

use crate::StoreErrorKind;

/// A count of everything an index keeps and of everything it was told.
///
/// Exact while no event is under way; beside running events each figure may
/// lag by what they are doing. Counts of what was, here and in
/// [`EventCounts`] and [`DrainCounts`], never fall.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Stats {
    /// Known workers.
    pub workers: u64,
    /// Workers among them whose last event panicked half done; see
    /// [`StoreError::Poisoned`](crate::StoreError::Poisoned).
    pub poisoned_workers: u64,
    /// Blocks in the tree: those that somebody holds and their ancestors.
    pub tree_blocks: u64,
    /// The sum over the workers of the names they have.
    pub held_blocks: u64,
    /// Entries of the lookup: at most the held places, equal to them where
    /// all workers name alike, 0 when nothing is held.
    pub lookup_entries: u64,
    /// Nodes of the tree, the root left out.
    pub nodes: u64,
    /// Names handed to [`Index::remove`](crate::Index::remove) and not yet
    /// applied.
    pub pending_removals: u64,
    /// How long the oldest of the pending names has waited, in nanoseconds;
    /// 0 where none is pending. Told as at most one
    /// [`removal_delay`](crate::Builder::removal_delay) and one drain longer
    /// than it is, as long as the clock's thread gets its turn. Where it does
    /// not, and callers apply parts of a queue above
    /// [`max_pending`](crate::Builder::max_pending): longer by at most the time
    /// in which a queue as it then was is applied in parts.
    pub pending_age_ns: u64,
    /// Blocks in stores that were refused, since the index was made.
    pub refused_blocks: u64,
    /// Those of the refused blocks for which a limit had no room.
    pub limited_blocks: u64,
    /// Removed names that their worker did not have, since the index was
    /// made; all of them where the worker was not known.
    pub unknown_removals: u64,
    /// Bytes that are out of the tree but may still be seen by a reader.
    pub retired_bytes: u64,
    /// What the index's memory is made of.
    pub memory: Memory,
    /// Events by kind and outcome, since the index was made.
    pub events: EventCounts,
    /// How removals were applied, since the index was made.
    pub drains: DrainCounts,
}

/// The index's own memory, in bytes asked of the allocator.
///
/// An account, not a measurement: it is kept where memory is taken and given
/// back, and leaves out what is small or short-lived: the allocator's own
/// overhead, the masks of holes, the lists of a node's children while they are
/// few (room for at most four a child, 16 bytes each), the buffers of at most
/// about 5 KiB a worker, queues of pending removals, the table of slots and the
/// collector's queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Memory {
    /// Nodes, their views and columns with their spare slots, child tables,
    /// the 16 KiB in which most queries that match nothing end.
    pub tree_bytes: u64,
    /// The lookup's tables, empty buckets included.
    pub lookup_bytes: u64,
    /// Lanes, with the tables of the nodes in which each worker holds
    /// something and of its private names.
    pub worker_bytes: u64,
    /// The same as [`Stats::retired_bytes`].
    pub retired_bytes: u64,
}

/// Events by kind and outcome.
///
/// What a worker has now is what it was given less what it lost:
/// [`held_blocks`](Stats::held_blocks) = `stored_blocks` − `stored_again` −
/// `removed_blocks` − `cleared_blocks` − `left_blocks` − `lost_blocks`. Events
/// without blocks or names do nothing and are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct EventCounts {
    /// Stores that were accepted.
    pub stores: u64,
    /// Their blocks.
    pub stored_blocks: u64,
    /// Those of them whose names the worker had already.
    pub stored_again: u64,
    /// Stores that were refused, and their blocks, by reason.
    pub refused: Refusals,
    /// Removals that were applied; those that wait are not counted yet.
    pub removals: u64,
    /// Names they took from the worker.
    pub removed_blocks: u64,
    /// Removals whose worker was not known, or no longer.
    pub stray_removals: u64,
    /// Clears of a known worker.
    pub clears: u64,
    /// Names they took from the worker.
    pub cleared_blocks: u64,
    /// Clears whose worker was not known.
    pub stray_clears: u64,
    /// Known workers that were removed.
    pub leavings: u64,
    /// Names they had.
    pub left_blocks: u64,
    /// Removals of workers that were not known.
    pub stray_leavings: u64,
    /// Names of workers when an event of theirs
    /// [panicked](crate::StoreError::Poisoned).
    pub lost_blocks: u64,
}

/// Events, and their blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Count {
    /// Events.
    pub events: u64,
    /// Their blocks.
    pub blocks: u64,
}

/// Refused stores by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Refusals {
    /// [`StoreError::ParentNotFound`](crate::StoreError::ParentNotFound).
    pub parent_not_found: Count,
    /// [`StoreError::RepeatedHash`](crate::StoreError::RepeatedHash).
    pub repeated_hash: Count,
    /// [`StoreError::IndexFull`](crate::StoreError::IndexFull).
    pub index_full: Count,
    /// [`StoreError::WorkerFull`](crate::StoreError::WorkerFull).
    pub worker_full: Count,
    /// [`StoreError::Poisoned`](crate::StoreError::Poisoned).
    pub poisoned: Count,
}

/// How queued removals were applied: a batch is what is applied under one
/// lock of a worker's lane at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct DrainCounts {
    /// Names in all batches, unknown ones included.
    pub names: u64,
    /// How many batches there were, by size: of 1 name, of 2, of up to 4, 8
    /// and so on ([`SIZES`](Self::SIZES)); the last is for all beyond.
    pub batches: [u64; BATCH_SIZES],
}

/// Sizes of batches told apart.
pub(crate) const BATCH_SIZES: usize = 11;

impl Count {
    fn plus(self, other: Count) -> Count {
        Count { events: self.events + other.events, blocks: self.blocks + other.blocks }
    }
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.tree_bytes + self.lookup_bytes + self.worker_bytes + self.retired_bytes
    }
}

impl Refusals {
    /// The stores refused for this reason.
    pub fn of(&self, kind: StoreErrorKind) -> Count {
        match kind {
            StoreErrorKind::ParentNotFound => self.parent_not_found,
            StoreErrorKind::RepeatedHash => self.repeated_hash,
            StoreErrorKind::IndexFull => self.index_full,
            StoreErrorKind::WorkerFull => self.worker_full,
            StoreErrorKind::Poisoned => self.poisoned,
        }
    }

    /// The same, to be changed.
    pub(crate) fn of_mut(&mut self, kind: StoreErrorKind) -> &mut Count {
        match kind {
            StoreErrorKind::ParentNotFound => &mut self.parent_not_found,
            StoreErrorKind::RepeatedHash => &mut self.repeated_hash,
            StoreErrorKind::IndexFull => &mut self.index_full,
            StoreErrorKind::WorkerFull => &mut self.worker_full,
            StoreErrorKind::Poisoned => &mut self.poisoned,
        }
    }

    /// The stores refused for any reason.
    pub fn total(&self) -> Count {
        let all = StoreErrorKind::ALL.iter().map(|kind| self.of(*kind));
        all.fold(Count::default(), Count::plus)
    }

    /// The stores refused for a limit.
    pub fn limited(&self) -> Count {
        self.index_full.plus(self.worker_full)
    }
}

impl DrainCounts {
    /// The most names of each size of batch but the last, which has no bound.
    pub const SIZES: [u64; BATCH_SIZES - 1] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

    /// Batches of any size.
    pub fn total(&self) -> u64 {
        self.batches.iter().sum()
    }

    /// Where a batch of so many names, at least one, is counted.
    #[inline]
    pub(crate) fn size_of_batch(names: usize) -> usize {
        let log = usize::BITS - names.saturating_sub(1).leading_zeros();
        (log as usize).min(BATCH_SIZES - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_counted_at_the_first_size_that_holds_it() {
        for names in 1..2_000 {
            let size = DrainCounts::size_of_batch(names);
            let fits = |bound: &u64| names as u64 <= *bound;
            let first = DrainCounts::SIZES.iter().position(fits).unwrap_or(BATCH_SIZES - 1);
            assert_eq!(size, first, "{names} names");
        }
    }
}

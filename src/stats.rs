//! What an index says of itself.

/// A count of everything an index keeps.
///
/// Exact while no event is under way; beside running events each figure may
/// lag by what they are doing.
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
    /// Blocks in stores that were refused, since the index was made.
    pub refused_blocks: u64,
    /// Those of the refused blocks for which a limit had no room.
    pub limited_blocks: u64,
    /// Removed names that their worker did not have, since the index was
    /// made.
    pub unknown_removals: u64,
    /// Bytes that are out of the tree but may still be seen by a reader.
    pub retired_bytes: u64,
}

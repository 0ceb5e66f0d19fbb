//! The key of a child below its parent, and its hash.
//!
//! The hash's lowest bits choose a hub's shard, those above them the slot; its
//! highest ones are the *tag*, which stands beside the child's address.

use super::place::SPARE_BITS;
use crate::LocalHash;
use crate::sync::Fold;

/// Most children that a view can list: a publish copies all of them, and their
/// table goes by the tag alone.
pub(crate) const MOST_LISTED: usize = 1_024;

/// Bits of a key's hash that choose a hub's shard, of which there may be so many
/// at most; the bits above them choose the slot.
pub(super) const SHARD_BITS: u32 = if cfg!(kvradix_loom) { 1 } else { 7 };

/// A child's key and its hash.
#[derive(Clone, Copy)]
pub(super) struct Key {
    /// How many blocks of the parent's run lie above.
    pub(super) offset: u32,
    /// The child's first block.
    pub(super) local: LocalHash,
    pub(super) hash: u64,
}

impl Key {
    #[inline]
    pub(super) fn new(fold: Fold, offset: u32, local: LocalHash) -> Self {
        let hash = fold.mix(fold.mix(local.0) ^ u64::from(offset));
        Self { offset, local, hash }
    }

    /// The bits that a slot keeps of it.
    #[inline]
    pub(super) fn tag(self) -> u32 {
        tag(self.hash)
    }
}

/// The bits of a key's hash that its slot keeps.
#[inline]
pub(super) fn tag(hash: u64) -> u32 {
    (hash >> (u64::BITS - SPARE_BITS)) as u32
}

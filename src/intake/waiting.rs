//! Blocks on the device whose parents are not.

use std::collections::{BTreeMap, HashMap};

use crate::sync::Fold;
use crate::{Block, LocalHash, SequenceHash};

/// Blocks that a rank has on its device below a block that it has elsewhere.
/// No query can reach them on the device, and the device's index, where a
/// store names a parent that is there, cannot take them: they wait for their
/// parent. Both ways of asking are O(log blocks).
#[derive(Debug)]
pub(super) struct Waiting {
    /// By parent, then name.
    below: BTreeMap<(SequenceHash, SequenceHash), LocalHash>,
    /// The parent of each.
    parents: HashMap<SequenceHash, SequenceHash, Fold>,
}

impl Waiting {
    pub(super) fn new(fold: Fold) -> Self {
        Self { below: BTreeMap::new(), parents: HashMap::with_hasher(fold) }
    }

    pub(super) fn len(&self) -> usize {
        self.parents.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parents.is_empty()
    }

    /// `block` waits for `parent`, and for no other any more.
    pub(super) fn add(&mut self, parent: SequenceHash, block: Block) {
        self.remove(block.sequence);
        self.parents.insert(block.sequence, parent);
        self.below.insert((parent, block.sequence), block.local);
    }

    /// The block of this name no longer waits.
    pub(super) fn remove(&mut self, name: SequenceHash) {
        if let Some(parent) = self.parents.remove(&name) {
            self.below.remove(&(parent, name));
        }
    }

    /// Takes one of those that wait for `parent`.
    pub(super) fn take(&mut self, parent: SequenceHash) -> Option<Block> {
        let all = (parent, SequenceHash(0))..=(parent, SequenceHash(u64::MAX));
        let (&(_, sequence), &local) = self.below.range(all).next()?;
        self.remove(sequence);
        Some(Block { sequence, local })
    }
}

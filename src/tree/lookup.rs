//! The lookup: from a block's name to its place, sharded by the name's hash.
//!
//! It has one entry per held block, however many workers hold it: made by the
//! first holder and removed with the last, under the node's lock.

use super::node::Node;
use super::place::Place;
use crate::sync::rank::Rank;
use crate::sync::{Guard, MOST_TOGETHER, Mutant, ShardedMap, mutant};
use crate::{Block, SequenceHash};

/// Names whose lines are fetched at a time, before they are looked at one by one.
pub(super) const NAMES_AHEAD: usize = 32;

/// The map from names to places.
pub(super) struct Lookup {
    map: ShardedMap<SequenceHash, Place>,
    /// Names from which on a batch is brought together by the shards: fewer
    /// hardly meet in one.
    many: usize,
}

impl Lookup {
    pub(super) fn new(shards: usize, many: usize) -> Self {
        Self { map: ShardedMap::new(shards, Rank::Lookup), many }
    }

    /// Whether so many names are for `insert_all` and `remove_all`.
    #[inline]
    pub(super) fn are_many(&self, names: usize) -> bool {
        names >= self.many
    }

    /// Makes ready for an operation on each of `names`; a batch of them at a
    /// time, so that they are still there when their turn comes.
    #[inline]
    pub(super) fn prefetch(&self, names: impl Iterator<Item = SequenceHash>) {
        self.map.prefetch(names);
    }

    /// The place whose canonical name is `name`, if anybody holds one.
    #[inline]
    #[allow(unsafe_code)]
    pub(super) fn get<'g>(
        &self,
        name: SequenceHash,
        guard: &'g Guard,
    ) -> Option<(&'g Node, Place)> {
        let place = self.map.get(&name)?;
        // SAFETY: an entry is removed while its block is held or under the
        // lock of a node that is still linked, so the block was in the tree
        // when the entry was read, under this pin.
        Some((unsafe { place.node(guard) }, place))
    }

    /// Makes `place` the one that `name` names; where another already is, it
    /// is the error. Under the node's exclusive lock, by the first holder.
    #[inline]
    #[allow(unsafe_code)]
    pub(super) fn insert<'g>(
        &self,
        name: SequenceHash,
        place: Place,
        guard: &'g Guard,
    ) -> Result<(), (&'g Node, Place)> {
        self.map.insert_absent(name, place).map_err(|other| {
            // SAFETY: as in `get`.
            (unsafe { other.node(guard) }, other)
        })
    }

    /// Removes the entry if it still names `place`. Under the node's
    /// exclusive lock, with the last holder.
    #[inline]
    pub(super) fn remove(&self, name: SequenceHash, place: Place) -> bool {
        self.map.remove_if(&name, |held| *held == place)
    }

    /// `insert` for the names of `blocks` at `first` and the places below it, a
    /// shard after the other. `named` is told what became of each, under the
    /// shard's lock; it takes no other.
    #[allow(unsafe_code)]
    pub(super) fn insert_all<'g>(
        &self,
        blocks: &[Block],
        first: Place,
        guard: &'g Guard,
        mut named: impl FnMut(SequenceHash, Place, Result<(), (&'g Node, Place)>),
    ) {
        for (part, blocks) in (0..).zip(blocks.chunks(MOST_TOGETHER)) {
            let name = |at: usize| blocks[at].sequence;
            let place = |at: usize| first.below(part * MOST_TOGETHER as u32 + at as u32);
            self.map.insert_absent_all(blocks.len(), name, place, |at, inserted| {
                // SAFETY: as in `get`.
                let inserted = inserted.map_err(|other| (unsafe { other.node(guard) }, other));
                let unchecked = mutant(Mutant::TogetherUnchecked);
                named(name(at), place(at), if unchecked { Ok(()) } else { inserted });
            });
        }
    }

    /// `remove` for the names and places that `entry` gives of `positions`, a
    /// shard after the other. `gone` is called for each entry that went, under
    /// the shard's lock; it takes no other.
    pub(super) fn remove_all(
        &self,
        positions: &[u32],
        entry: impl Fn(u32) -> (SequenceHash, Place),
        mut gone: impl FnMut(),
    ) {
        for positions in positions.chunks(MOST_TOGETHER) {
            let name = |at: usize| entry(positions[at]).0;
            let doomed = |at: usize, held: &Place| *held == entry(positions[at]).1;
            self.map.remove_all_if(positions.len(), name, doomed, |_| gone());
        }
    }

    /// Bytes of the tables.
    pub(super) fn bytes(&self) -> usize {
        self.map.bytes()
    }

    /// Panics where a shard has more room than its entries are worth.
    pub(super) fn check_room(&self) {
        self.map.check_room();
    }

    /// `remove` after a panic. A call of its own, so that the other one stays
    /// in line.
    #[cold]
    pub(super) fn scrub(&self, name: SequenceHash, place: Place) -> bool {
        self.map.remove_if(&name, |held| held == &place)
    }

    /// Calls `see` with every entry; for the checker.
    pub(super) fn for_each(&self, mut see: impl FnMut(SequenceHash, Place)) {
        self.map.for_each(|name, place| see(*name, *place));
    }
}

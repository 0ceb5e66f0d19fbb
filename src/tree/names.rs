//! A worker's names: which of its names stand for which places.
//!
//! A name is *canonical* at a place when the column calls the block so and
//! the lookup's entry points at this very place. A worker that knows a block
//! by its canonical name keeps nothing of its own for it; every other name is
//! *private* and kept here.
//!
//! Invariants: a name is in `private` or canonical at one place that the
//! worker holds, never both. A place in `aliases` is held. A place the worker
//! holds that is not in `aliases` it holds by the canonical name alone.

use super::Tree;
use super::levels;
use super::node::Node;
use super::place::Place;
use super::spread::Spread;
use crate::SequenceHash;
use crate::sync::rank::Rank;
use crate::sync::{Fold, Guard};

/// What one worker holds and by which names. Guarded by its lane's lock.
pub(super) struct Names {
    /// The worker's slot.
    pub(super) slot: u32,
    /// How many names there are.
    pub(super) count: usize,
    /// The nodes in which the worker holds something: the place of the first
    /// block of each. What is held is in the tree, so they need no owner here.
    pub(super) nodes: Spread<Place, ()>,
    /// The last block of the last store, below which the next one often
    /// goes; `None` once the worker no longer has it so.
    pub(super) latest: Option<(SequenceHash, Place)>,
    private: Spread<SequenceHash, Place>,
    /// Places with private names.
    aliases: Spread<Place, Aliases>,
}

/// The names of a place that has private ones.
#[derive(Clone, Copy)]
struct Aliases {
    private: u32,
    /// Whether the worker has the canonical name too.
    canonical: bool,
}

/// Where a name stands.
#[derive(Clone, Copy)]
pub(super) struct Found<'g> {
    pub(super) node: &'g Node,
    pub(super) place: Place,
}

impl Names {
    pub(super) fn new(slot: u32, fold: Fold) -> Self {
        Self {
            slot,
            count: 0,
            nodes: Spread::with_hasher(fold),
            latest: None,
            private: Spread::with_hasher(fold),
            aliases: Spread::with_hasher(fold),
        }
    }

    /// The place of `name`, if the worker has the name. O(1) and at most one
    /// look at the lookup.
    pub(super) fn resolve<'g>(
        &self,
        tree: &Tree,
        name: SequenceHash,
        guard: &'g Guard,
    ) -> Option<Found<'g>> {
        if let Some((_, place)) = self.latest.filter(|(latest, _)| *latest == name) {
            return Some(Found { node: Self::node_of(place, guard), place });
        }
        if let Some(place) = self.private_place(name) {
            return Some(Found { node: Self::node_of(place, guard), place });
        }
        let (node, place) = tree.lookup.get(name, guard)?;
        self.has_canonical(node, place, guard).then_some(Found { node, place })
    }

    /// The place of a private name.
    #[inline]
    pub(super) fn private_place(&self, name: SequenceHash) -> Option<Place> {
        if self.private.is_empty() { None } else { self.private.get(&name).copied() }
    }

    /// Whether the worker has no private name, nor one that has left the map
    /// and is still to be given up at its place.
    #[inline]
    pub(super) fn all_canonical(&self) -> bool {
        self.private.is_empty() && self.aliases.is_empty()
    }

    /// Whether the worker holds `place`, whose lookup entry was seen, by its
    /// canonical name. What it holds changes under its lane's lock alone, so
    /// the answer stays right.
    pub(super) fn has_canonical(&self, node: &Node, place: Place, guard: &Guard) -> bool {
        if !self.knows_canonical(place) {
            return false;
        }
        // The view says so without a lock; what lies behind a hole it leaves
        // out.
        if levels::cutoff_of(node.view(guard).levels(), self.slot) > place.at() {
            return true;
        }
        let half = node.read(Rank::Child);
        half.holds(node.view(guard).levels(), self.slot, place.at())
    }

    /// Whether the worker, if it holds `place`, does so by the canonical
    /// name.
    #[inline]
    pub(super) fn knows_canonical(&self, place: Place) -> bool {
        self.aliases.is_empty() || self.aliases.get(&place).is_none_or(|aliases| aliases.canonical)
    }

    /// The node of a place that a worker holds, or that its lane lists; the
    /// caller has the lane's lock.
    #[allow(unsafe_code)]
    pub(super) fn node_of(place: Place, guard: &Guard) -> &Node {
        // SAFETY: the worker holds something in the node, so it is in the
        // tree while the lane is locked.
        unsafe { place.node(guard) }
    }

    /// Adds the canonical name of `place`, which the worker does not have.
    /// `held`: whether the worker holds the place already, by other names.
    pub(super) fn add_canonical(&mut self, place: Place, held: bool) {
        if held {
            let aliases = self.aliases.get_mut(&place).expect("held, and not by this name");
            aliases.canonical = true;
        }
        self.count += 1;
    }

    /// Adds a private name of `place`. If the name was private at another
    /// place, that is the result, and still to be given up there. `held`:
    /// whether the worker holds the place already.
    pub(super) fn add_private(
        &mut self,
        name: SequenceHash,
        place: Place,
        held: bool,
    ) -> Option<Place> {
        let before = self.private.insert(name, place);
        debug_assert!(before != Some(place));
        match self.aliases.get_mut(&place) {
            Some(aliases) => aliases.private += 1,
            None => _ = self.aliases.insert(place, Aliases { private: 1, canonical: held }),
        }
        self.count += 1;
        before
    }

    /// Takes a private name out of the map, to be given up at its place. Most
    /// workers have none, and are asked at every name.
    #[inline(always)]
    pub(super) fn take_private(&mut self, name: SequenceHash) -> Option<Place> {
        if self.private.is_empty() { None } else { self.private.remove(&name) }
    }

    /// Gives up a name of a held place: a private one, already out of the
    /// map, or the canonical one. Whether it was the last one, so that the
    /// worker no longer holds the place.
    #[inline]
    pub(super) fn give_up(&mut self, place: Place, private: bool) -> bool {
        self.count -= 1;
        if self.latest.is_some_and(|(_, latest)| latest == place) {
            self.latest = None;
        }
        self.aliases.is_empty() || self.give_up_alias(place, private)
    }

    /// Gives up the names of the `count` blocks from `first` on, the last that
    /// the worker holds in their run. It has canonical names alone; `above` is
    /// that of the block above them, if that is in the run.
    #[inline]
    pub(super) fn give_up_tail(&mut self, first: Place, count: u32, above: Option<SequenceHash>) {
        debug_assert!(self.all_canonical());
        self.count -= count as usize;
        let gone = |(_, latest): (SequenceHash, Place)| {
            latest.is_beside(first) && latest.at() >= first.at()
        };
        if self.latest.is_some_and(gone) {
            // A chain that loses its tail often goes on above it.
            self.latest = above.zip(first.above());
        }
    }

    /// The same of a place that may have private names.
    #[inline(never)]
    fn give_up_alias(&mut self, place: Place, private: bool) -> bool {
        let Some(aliases) = self.aliases.get_mut(&place) else { return true };
        if private {
            aliases.private -= 1;
        } else {
            aliases.canonical = false;
        }
        let Aliases { private, canonical } = *aliases;
        if private == 0 {
            self.aliases.remove(&place);
        }
        private == 0 && !canonical
    }

    /// Forgets every name; the nodes have left already.
    pub(super) fn forget_all(&mut self) {
        self.count = 0;
        self.latest = None;
        self.private.clear();
        self.aliases.clear();
    }

    /// Bytes of the three maps.
    pub(super) fn bytes(&self) -> usize {
        self.nodes.bytes() + self.private.bytes() + self.aliases.bytes()
    }

    /// Forgets everything, whatever is true of it.
    pub(super) fn reset(&mut self) {
        self.nodes.clear();
        self.forget_all();
    }

    /// Panics where a map has more room than its entries are worth.
    pub(super) fn check_room(&self) {
        self.nodes.check("nodes");
        self.private.check("private names");
        self.aliases.check("places with private names");
    }

    /// Every private name and its place.
    pub(super) fn privates(&self) -> impl Iterator<Item = (SequenceHash, Place)> {
        self.private.iter()
    }

    /// Calls `let_go` for each node in which the worker holds something, which
    /// it then does not.
    pub(super) fn let_go_nodes(&mut self, let_go: impl FnMut(Place)) {
        self.nodes.take_all(let_go);
    }

    /// Notes that the worker holds something in `node`.
    pub(super) fn enter(&mut self, node: &Node) {
        self.nodes.insert(Place::new(node, 0), ());
    }

    /// Notes that the worker holds nothing in `node` any more.
    pub(super) fn leave(&mut self, node: &Node) {
        self.nodes.remove(&Place::new(node, 0));
    }
}

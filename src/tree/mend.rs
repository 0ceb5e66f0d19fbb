//! After a panic: what an event left half done is put right.
//!
//! No event panics by itself; this is for the day on which one does. Two
//! steps, see *Faults* in ARCHITECTURE.md:
//!
//! A panic below a node's lock *mends* the node before it is unlocked: the
//! worker whose event it was holds nothing there any more, and the half, the
//! view and the lookup agree again, so every other worker finds what is its
//! own. What this leaves is memory: blocks that nobody holds, an empty node.
//!
//! The worker's lane is then poisoned: its books are not trusted, and it is
//! out of every answer. To *heal* it the whole tree is gone through for what
//! the worker holds and for what was left.

use super::garbage::{Outgoing, Retired};
use super::kids;
use super::levels;
use super::node::{Half, Node};
use super::place::Place;
use super::scratch::Scratch;
use super::view::ViewBox;
use super::{Holdings, Tree, TreeConfig};
use crate::sync::rank::Rank;
use crate::sync::{Arc, Fault, Guard, Omission, WriteGuard, fault, omitted, pin};

/// Nodes that are healed under one pin.
const PINNED: usize = 64;

/// A child that was just linked, still locked: its blocks have a holder but
/// no names. Dropped before that, which only a panic does, it mends the node.
pub(super) struct Newborn<'n> {
    pub(super) tree: &'n Tree,
    pub(super) node: &'n Node,
    pub(super) half: WriteGuard<'n, Half>,
    pub(super) guard: &'n Guard,
    pub(super) slot: u32,
    /// Whether its blocks have their names.
    pub(super) named: bool,
}

/// What mending has changed in the counts and is in no lane's share.
#[derive(Clone, Copy, Default)]
pub(super) struct Mended {
    pub(super) entries: i64,
    pub(super) tree_bytes: i64,
}

impl Drop for Newborn<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.named && !omitted(Omission::ChildUnmended) {
            let mut retired = Outgoing::default();
            self.tree.mend(self.node, &mut self.half, self.slot, &mut retired, self.guard);
            self.tree.take_mended(&mut retired, self.guard);
        }
    }
}

impl Tree {
    /// Makes half, view and lookup agree again where a panic has parted them,
    /// by taking out of the node whatever `slot` holds. Under the node's
    /// exclusive lock, with all its children in the half.
    ///
    /// Others' blocks, names and levels are as the view has them: an event
    /// changes only its own worker's, and the names of blocks that nobody else
    /// holds.
    #[cold]
    pub(super) fn mend(
        &self,
        node: &Node,
        half: &mut Half,
        slot: u32,
        retired: &mut Outgoing,
        guard: &Guard,
    ) {
        let view = node.view(guard);
        let mut levels = view.levels().to_vec();
        let cutoff = levels::cutoff_of(&levels, slot);
        levels::set_cutoff(&mut levels, slot, cutoff, 0);
        half.set_mask(slot, None);

        // Also the blocks that were appended behind what the view shows.
        let mut removed = 0;
        for at in levels::deepest(&levels)..half.columns.written() {
            if !half.masked_by_others(slot, at) {
                half.set_flag(at, false);
                let entry = self.lookup.scrub(half.columns.name(at), Place::new(node, at));
                removed += i64::from(entry);
            }
        }
        self.mended.lock(Rank::Retired).entries -= removed;

        // Nor is there to be room for what was not appended.
        let cut = half.columns.cut(view.len()).map(|columns| {
            retired.made(columns.bytes());
            std::mem::replace(&mut half.columns, columns)
        });

        let few = half.children.few().iter();
        let kids: Vec<_> = few.map(|child| kids::entry(&child.node, self.fold)).collect();
        let window = half.columns.window(view.len());
        let next = ViewBox::new(window, &levels, &kids[..], half.hub());
        retired.made(next.bytes());
        if let Some(before) = node.publish(half, next) {
            retired.push(Retired::View(before));
        }
        half.children.tidy();
        if let Some(columns) = cut {
            node.move_columns(half);
            retired.push(Retired::Columns(columns));
        }
    }

    /// Retires what mending has replaced.
    #[cold]
    pub(super) fn take_mended(&self, retired: &mut Outgoing, guard: &Guard) {
        self.mended.lock(Rank::Retired).tree_bytes += std::mem::take(&mut retired.balance);
        self.garbage.take(retired, guard);
    }

    /// Takes the worker out of every node, and out of the tree what panics
    /// have left there. The worker's lane is locked, its names are forgotten.
    /// O(nodes of the tree).
    pub(super) fn heal(&self, lane: &mut Holdings) {
        let mut left = vec![self.root.clone()];
        while !left.is_empty() {
            let guard = pin();
            for _ in 0..PINNED {
                let Some(node) = left.pop() else { break };
                left.extend(children_of(&node));
                fault(Fault::Healing);
                self.heal_node(lane, &node, &guard);
            }
            self.garbage.take(&mut lane.scratch.retired, &guard);
            drop(guard);
            self.garbage.reclaim();
        }
    }

    fn heal_node(&self, lane: &mut Holdings, node: &Arc<Node>, guard: &Guard) {
        if let Some(hub) = node.read(Rank::Parent).hub() {
            hub.fit(&mut lane.scratch.retired);
        }
        if !self.is_whole(lane.names.slot, node, guard) {
            self.let_go_of_node(lane.names.slot, &mut lane.scratch, node, guard);
        }
        self.widen_when_full(lane, node, guard);
        let TreeConfig { hub_threshold, .. } = self.config;
        let shrunk = node.view(guard).hub().is_some_and(|hub| hub.len() <= hub_threshold / 2);
        if shrunk && !node.is_root() {
            self.settle_emptied(&mut lane.scratch, node, guard);
        }
    }

    /// Whether `slot` holds nothing here and the run ends where it must.
    fn is_whole(&self, slot: u32, node: &Node, guard: &Guard) -> bool {
        let half = node.read(Rank::Child);
        if node.is_root() || half.detached {
            return true;
        }
        let view = node.view(guard);
        let levels = view.levels();
        let children_end = half.children.end(None);
        levels::cutoff_of(levels, slot) == 0
            && half.mask(slot).is_none()
            && (view.len() > 0 && view.len() == half.needed(levels, children_end)
                || omitted(Omission::TailsLeft))
    }

    /// After a child left a hub, as `settle`, and detaches what is empty then.
    fn settle_emptied(&self, scratch: &mut Scratch, node: &Node, guard: &Guard) {
        if let Some(above) = self.settle(scratch, node, guard) {
            self.detach(scratch, above, node, guard);
        }
    }

    /// How many slots there are, for the tests of faults.
    #[cfg(kvradix_faults)]
    pub(crate) fn slots_made(&self) -> u32 {
        self.roster.slots_made()
    }
}

/// Owners of a node's children. One that comes meanwhile holds nothing of a
/// worker whose lane is locked.
fn children_of(node: &Node) -> Vec<Arc<Node>> {
    node.read(Rank::Parent).children.all()
}

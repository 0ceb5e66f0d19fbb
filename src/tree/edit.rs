//! A node locked exclusively, with its next view in the making.

use super::columns::Columns;
use super::garbage::Retired;
use super::levels::{self, Level};
use super::mask::Mask;
use super::node::{Children, Half, Node};
use super::scratch::Scratch;
use super::view::{Kid, View, ViewBox};
use crate::LocalHash;
use crate::sync::{Guard, Mutant, WriteGuard, mutant};

/// Slots of columns that are kept however short the run becomes.
pub(super) const KEPT_SLOTS: u32 = 64;

/// Changes to one node that become visible together.
pub(super) struct Edit<'n> {
    pub(super) node: &'n Node,
    pub(super) half: WriteGuard<'n, Half>,
    /// What readers see now.
    pub(super) view: View<'n>,
    /// The run's next length.
    pub(super) len: u32,
    /// The next owner levels.
    pub(super) levels: Vec<Level>,
    /// Whether anything that the view shows has changed.
    pub(super) touched: bool,
    replaced: Replaced,
}

/// What the view that readers see still names and the next one will not:
/// retired once that is out. Should a panic come first, it is leaked, since
/// readers go on to see it.
#[derive(Default)]
struct Replaced([Option<Retired>; 2]);

impl Replaced {
    fn push(&mut self, value: Retired) {
        let free = self.0.iter_mut().find(|slot| slot.is_none());
        *free.expect("columns and a hub at most") = Some(value);
    }

    fn hand_over(mut self, retired: &mut Vec<Retired>) {
        retired.extend(self.0.iter_mut().filter_map(Option::take));
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        std::mem::forget(std::mem::take(&mut self.0));
    }
}

/// How the few children change.
#[derive(Clone, Copy)]
pub(super) enum KidChange<'a> {
    Same,
    Added(Kid),
    Removed(&'a Node),
    /// They went to a hub, or all came back from one.
    All(&'a [Kid]),
}

impl<'n> Edit<'n> {
    pub(super) fn new(
        node: &'n Node,
        half: WriteGuard<'n, Half>,
        scratch: &mut Scratch,
        guard: &'n Guard,
    ) -> Self {
        let view = node.view(guard);
        let mut levels = std::mem::take(&mut scratch.levels);
        levels.clear();
        levels.extend_from_slice(view.levels());
        Self {
            node,
            half,
            view,
            len: view.len(),
            levels,
            touched: false,
            replaced: Replaced::default(),
        }
    }

    /// Whether `slot` holds nothing here.
    pub(super) fn holds_nothing(&self, slot: u32) -> bool {
        levels::cutoff_of(&self.levels, slot) == 0 && self.half.mask(slot).is_none()
    }

    /// Whether `slot` holds the block at `at`.
    pub(super) fn holds(&self, slot: u32, at: u32) -> bool {
        self.half.holds(&self.levels, slot, at)
    }

    /// Lets `slot` hold the blocks from `from` to `to`; how many it did not
    /// hold before.
    pub(super) fn hold(&mut self, slot: u32, from: u32, to: u32) -> u32 {
        let cutoff = levels::cutoff_of(&self.levels, slot);
        let (new_cutoff, fresh) = match self.half.mask(slot) {
            None if from <= cutoff => (cutoff.max(to), to.saturating_sub(cutoff)),
            None => {
                let mut mask = Mask::prefix(cutoff);
                mask.set_range(from, to);
                self.half.set_mask(slot, Some(mask));
                (cutoff, to - from)
            }
            Some(mask) => {
                let mut mask = mask.clone();
                let fresh = (from..to).filter(|at| !mask.get(*at)).count() as u32;
                mask.set_range(from, to);
                (self.put_mask(slot, mask), fresh)
            }
        };
        levels::set_cutoff(&mut self.levels, slot, cutoff, new_cutoff);
        self.touched |= cutoff != new_cutoff;
        fresh
    }

    /// Lets `slot` no longer hold the blocks at `positions`, all of which it
    /// holds; they descend.
    pub(super) fn let_go(&mut self, slot: u32, positions: &[u32]) {
        let cutoff = levels::cutoff_of(&self.levels, slot);
        let mask = self.half.mask(slot).cloned();
        let new_cutoff = match mask {
            None if positions.first().is_some_and(|at| at + 1 == cutoff)
                && positions.windows(2).all(|pair| pair[0] == pair[1] + 1) =>
            {
                cutoff - positions.len() as u32
            }
            mask => {
                let mut mask = mask.unwrap_or_else(|| Mask::prefix(cutoff));
                for at in positions {
                    debug_assert!(mask.get(*at));
                    mask.clear(*at);
                }
                let leading = self.put_mask(slot, mask);
                if mutant(Mutant::HoleUnseen) { cutoff } else { leading }
            }
        };
        levels::set_cutoff(&mut self.levels, slot, cutoff, new_cutoff);
        self.touched |= cutoff != new_cutoff;
    }

    /// Keeps `mask` for `slot` if there is a hole in it; its level.
    fn put_mask(&mut self, slot: u32, mask: Mask) -> u32 {
        let leading = mask.leading();
        let holed = mask.end() > leading;
        self.half.set_mask(slot, holed.then_some(mask));
        leading
    }

    /// Whether a child hangs below the first `offset` blocks.
    pub(super) fn any_child_at(&self, offset: u32) -> bool {
        match self.half.hub() {
            Some(hub) => hub.any_at(offset),
            None => self.view.kids().iter().any(|kid| kid.offset == offset),
        }
    }

    /// The child below the first `offset` blocks that begins with `local`.
    pub(super) fn child(
        &self,
        offset: u32,
        local: LocalHash,
        guard: &'n Guard,
    ) -> Option<&'n Node> {
        self.view.child(offset, local, guard)
    }

    /// Cuts what nobody holds off the run's end, given how the children are
    /// about to change. Columns that became far too large are replaced.
    pub(super) fn trim(&mut self, kids: KidChange<'_>, scratch: &mut Scratch) {
        if self.node.is_root() {
            return;
        }
        let children_end = match self.half.hub() {
            Some(hub) => hub.end(),
            None => {
                let kept = self.view.kids().iter().filter(|kid| match kids {
                    KidChange::Removed(node) => !kid.is(node),
                    _ => true,
                });
                kept.map(|kid| kid.offset).max().unwrap_or(0)
            }
        };
        let needed = self.half.needed(&self.levels, children_end);
        debug_assert!(needed <= self.len);
        if needed == self.len {
            return;
        }
        scratch.delta.tree_blocks -= i64::from(self.len - needed);
        self.len = needed;
        self.touched = true;
        let capacity = self.half.columns.capacity();
        if capacity > KEPT_SLOTS && needed < capacity / 4 && needed > 0 {
            let copy = self.half.columns.copy(needed, needed + needed / 4);
            self.replace_columns(copy);
        }
    }

    /// Puts `columns` in the place of the node's, which readers may still
    /// see.
    pub(super) fn replace_columns(&mut self, columns: Columns) {
        let before = std::mem::replace(&mut self.half.columns, columns);
        self.replaced.push(Retired::Columns(before));
        self.node.moved_columns(&self.half);
        self.touched = true;
    }

    /// Puts `children` in the place of the node's; a hub among those readers
    /// may still see.
    pub(super) fn replace_children(&mut self, children: Children) {
        if let Children::Hub(hub) = std::mem::replace(&mut self.half.children, children) {
            self.replaced.push(Retired::Hub(hub));
        }
    }

    /// Publishes what has changed and returns the lock, still held.
    pub(super) fn publish(
        mut self,
        kids: KidChange<'_>,
        scratch: &mut Scratch,
    ) -> WriteGuard<'n, Half> {
        if self.touched || !matches!(kids, KidChange::Same) {
            let window = self.half.columns.window(self.len);
            let hub = self.half.hub();
            let (kids, without, with) = match kids {
                KidChange::Same => (self.view.kids(), None, None),
                KidChange::Added(kid) => (self.view.kids(), None, Some(kid)),
                KidChange::Removed(node) => (self.view.kids(), Some(node), None),
                KidChange::All(kids) => (kids, None, None),
            };
            let view = ViewBox::new(window, &self.levels, kids, without, with, hub);
            let before = self.node.publish(&mut self.half, view);
            scratch.retired.push(Retired::View(before));
            self.replaced.hand_over(&mut scratch.retired);
        }
        scratch.levels = self.levels;
        self.half
    }
}

//! A node locked exclusively, with its next view in the making.

use super::Tree;
use super::columns::Columns;
use super::garbage::{Outgoing, Retired};
use super::hub::Hub;
use super::levels::{self, Level};
use super::link::linked;
use super::mask::Mask;
use super::node::{Children, Half, Node};
use super::scratch::Scratch;
use super::slot::Entry;
use super::view::{View, ViewBox};
use crate::LocalHash;
use crate::sync::{Arc, Fault, Guard, Mutant, Omission, WriteGuard, fault, mutant, omitted};

/// Changes to one node that become visible together.
///
/// Between `new` and `publish` the half is ahead of what readers see. Dropped
/// there, which only a panic does, the edit mends the node before it is
/// unlocked.
pub(super) struct Edit<'n> {
    tree: &'n Tree,
    pub(super) node: &'n Node,
    pub(super) half: WriteGuard<'n, Half>,
    /// What readers see now.
    pub(super) view: View<'n>,
    guard: &'n Guard,
    /// The worker whose event this is.
    slot: u32,
    /// The run's next length.
    pub(super) len: u32,
    /// The next owner levels.
    pub(super) levels: Vec<Level>,
    /// Whether anything that the view shows has changed.
    pub(super) touched: bool,
    /// Whether view and half agree.
    published: bool,
    /// Shorter columns, to take the place of the node's with the next view.
    cut: Option<Columns>,
    replaced: Replaced,
    /// Bytes of what came in the place of that.
    made: usize,
}

/// What the view that readers see still names and the next one will not:
/// retired once that is out.
#[derive(Default)]
struct Replaced {
    columns: Option<Columns>,
    hub: Option<Arc<Hub>>,
}

impl Replaced {
    #[inline]
    fn hand_over(&mut self, retired: &mut Outgoing) {
        if let Some(columns) = self.columns.take() {
            retired.push(Retired::Columns(columns));
        }
        if let Some(hub) = self.hub.take() {
            retired.push(Retired::Hub(hub));
        }
    }
}

/// How the few children change.
#[derive(Clone, Copy)]
pub(super) enum KidChange<'a> {
    Same,
    Added(Entry),
    Removed(&'a Node),
    /// They went to a hub, or all came back from one.
    All(&'a [Entry]),
}

/// What `commit` is to make of an edit.
pub(super) enum Next<'a> {
    /// Nothing has changed.
    Same,
    View(ViewBox),
    /// A child comes into the view as it is.
    Put(Entry),
    /// One goes from it.
    Take(&'a Node),
}

impl<'n> Edit<'n> {
    #[inline]
    pub(super) fn new(
        tree: &'n Tree,
        node: &'n Node,
        half: WriteGuard<'n, Half>,
        scratch: &mut Scratch,
        guard: &'n Guard,
    ) -> Self {
        fault(Fault::NodeLocked);
        let view = node.view(guard);
        Self {
            tree,
            node,
            half,
            view,
            guard,
            slot: scratch.slot,
            len: view.len(),
            levels: levels_of(view, scratch),
            touched: false,
            published: false,
            cut: None,
            replaced: Replaced::default(),
            made: 0,
        }
    }

    /// Goes on after a `publish`, under the same lock.
    pub(super) fn renew(&mut self, scratch: &mut Scratch) {
        self.view = self.node.view(self.guard);
        self.len = self.view.len();
        self.levels = levels_of(self.view, scratch);
        self.touched = false;
        self.published = false;
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
        self.half.children.any_at(offset)
    }

    /// The child below the first `offset` blocks that begins with `local`.
    pub(super) fn child(
        &self,
        offset: u32,
        local: LocalHash,
        guard: &'n Guard,
    ) -> Option<&'n Node> {
        self.view.child(offset, local, self.tree.fold, guard)
    }

    /// Cuts what nobody holds off the run's end, given how the children are
    /// about to change. Columns that became far too large are replaced.
    pub(super) fn trim(&mut self, kids: KidChange<'_>) {
        if self.node.is_root() {
            return;
        }
        let gone = match kids {
            KidChange::Removed(node) => Some(node),
            _ => None,
        };
        let children_end = self.half.children.end(gone);
        let needed = self.half.needed(&self.levels, children_end);
        debug_assert!(needed <= self.len);
        if needed == self.len {
            return;
        }
        self.len = needed;
        self.touched = true;
        if let Some(columns) = self.half.columns.cut(needed) {
            self.cut = Some(columns);
        }
        fault(Fault::Trimmed);
    }

    /// Puts `columns` in the place of the node's, which readers may still
    /// see; they have all blocks of the view.
    pub(super) fn replace_columns(&mut self, columns: Columns) {
        self.made += columns.bytes();
        let before = std::mem::replace(&mut self.half.columns, columns);
        self.replaced.columns = Some(before);
        self.node.move_columns(&self.half);
        self.touched = true;
        fault(Fault::ColumnsReplaced);
    }

    /// Puts `children`, the same ones, in the place of the node's; a hub
    /// among those readers may still see. A new hub is nobody else's yet.
    pub(super) fn replace_children(&mut self, children: Children) {
        if let Children::Hub(hub) = &children {
            self.made += hub.bytes();
        }
        if let Children::Hub(hub) = std::mem::replace(&mut self.half.children, children) {
            self.replaced.hub = Some(hub);
        }
    }

    /// The node's parent, if nothing will be left of the run.
    #[inline]
    pub(super) fn emptied(&self) -> Option<&'n Node> {
        if self.len > 0 { None } else { linked(&self.half, self.guard) }
    }

    /// Trims and publishes; the node's parent, if nothing is left of the run.
    #[inline]
    pub(super) fn finish(&mut self, scratch: &mut Scratch) -> Option<&'n Node> {
        self.trim(KidChange::Same);
        self.publish(KidChange::Same, scratch);
        self.emptied()
    }

    /// Publishes what has changed; the lock stays held.
    pub(super) fn publish(&mut self, kids: KidChange<'_>, scratch: &mut Scratch) {
        let next = self.next(kids);
        self.commit(next, scratch);
        fault(Fault::Published);
    }

    /// What `commit` is to publish.
    #[inline(always)]
    pub(super) fn next<'a>(&self, kids: KidChange<'a>) -> Next<'a> {
        let listed = self.view.kids();
        match kids {
            // In place only where nothing else changes: a parent that is raised
            // and its new child come out together.
            _ if self.touched => {}
            KidChange::Same => return Next::Same,
            KidChange::Added(kid) if listed.has_room(kid) => return Next::Put(kid),
            KidChange::Removed(node) if !listed.is_idle(self.half.children.few().len() - 1) => {
                return Next::Take(node);
            }
            _ => {}
        }
        let count = self.half.children.few().len();
        let window = self.cut.as_ref().unwrap_or(&self.half.columns).window(self.len);
        let hub = self.half.hub();
        let kids = match kids {
            KidChange::Same => listed.same(count),
            KidChange::Added(kid) => listed.with(kid, count + 1),
            KidChange::Removed(node) => listed.without(node, count - 1),
            KidChange::All(kids) => kids.into(),
        };
        let view = ViewBox::new(window, &self.levels, kids, hub);
        fault(Fault::ViewMade);
        Next::View(view)
    }

    /// Publishes what `next` gave last, which has seen that the slot is there or
    /// the child listed. Nothing in here can panic: what the caller does right
    /// before or after it is one step with it.
    #[inline(always)]
    pub(super) fn commit(&mut self, next: Next<'_>, scratch: &mut Scratch) {
        match next {
            Next::Same => {}
            Next::Put(kid) => self.view.kids().put(kid),
            Next::Take(node) => self.view.kids().take(node, self.tree.fold),
            Next::View(view) => self.commit_view(view, scratch),
        }
        self.published = true;
        scratch.levels = std::mem::take(&mut self.levels);
    }

    #[inline(always)]
    fn commit_view(&mut self, view: ViewBox, scratch: &mut Scratch) {
        let cut = self.cut.take().map(|columns| {
            self.made += columns.bytes();
            std::mem::replace(&mut self.half.columns, columns)
        });
        scratch.delta.tree_blocks += i64::from(self.len) - i64::from(self.view.len());
        scratch.retired.made(std::mem::take(&mut self.made) + view.bytes());
        if cut.is_some() && mutant(Mutant::ColumnsCutEarly) {
            self.node.move_columns(&self.half);
        }
        if let Some(before) = self.node.publish(&mut self.half, view) {
            scratch.retired.push(Retired::View(before));
        }
        if let Some(before) = cut {
            self.node.move_columns(&self.half);
            self.replaced.columns = Some(before);
        }
        self.replaced.hand_over(&mut scratch.retired);
        self.half.children.tidy();
    }
}

impl Drop for Edit<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.published && !omitted(Omission::NodeUnmended) {
            let mut retired = Outgoing::default();
            retired.made(self.made);
            self.tree.mend(self.node, &mut self.half, self.slot, &mut retired, self.guard);
            self.replaced.hand_over(&mut retired);
            self.tree.take_mended(&mut retired, self.guard);
        }
    }
}

/// The levels of a view, in the lane's buffer.
fn levels_of(view: View<'_>, scratch: &mut Scratch) -> Vec<Level> {
    let mut levels = std::mem::take(&mut scratch.levels);
    levels.clear();
    match view.levels() {
        [level] => levels.push(*level),
        all => levels.extend_from_slice(all),
    }
    levels
}

//! A node: a run of blocks, its owners and its children.

use super::columns::Columns;
use super::hub::Hub;
use super::kids::NextKids;
use super::levels::{self, Level};
use super::link::expose;
use super::mask::Mask;
use super::published::{Line, Published};
use super::view::{View, ViewBox};
use crate::sync::rank::Rank;
use crate::sync::{Arc, Guard, ReadGuard, RwLock, Weak, Witness, WriteGuard, prefetch};
use crate::{LocalHash, SequenceHash};

/// The offset of the node that hangs nowhere.
const ROOT: u32 = u32::MAX;

/// A run of blocks. What readers load comes last: before it are the lock and
/// the writers' half, and in front of the node its `Arc`'s counts, all of
/// which writers change in any event. The alignment frees the address bits
/// that a place keeps a position in.
#[repr(C, align(16))]
pub(crate) struct Node {
    half: RwLock<Half>,
    view: Published,
    /// The run's first block; never changes.
    first: LocalHash,
    /// How many blocks of the parent's run lie above; never changes.
    offset: u32,
    witness: Witness,
}

/// What only writers see, under the node's lock; what changes most is farthest
/// from what readers load.
#[repr(C)]
pub(super) struct Half {
    pub(super) columns: Columns,
    pub(super) children: Children,
    /// What few nodes need.
    extra: Option<Box<Extra>>,
    /// The parent; nobody once the node is detached.
    pub(super) parent: Weak<Node>,
    /// Whether the node left the tree. It never comes back.
    pub(super) detached: bool,
}

/// The owners of a node's children. While they are few, the view names the
/// same nodes.
pub(super) enum Children {
    None,
    /// Boxed twice, so that the many nodes without children stay small.
    #[allow(clippy::box_collection)]
    Few(Box<Vec<FewChild>>),
    Hub(Arc<Hub>),
}

/// Children for which an idle list may keep room.
const KEPT_CHILDREN: usize = 8;

/// One of few children, and its offset: who trims the run need not look at
/// every child.
#[derive(Clone)]
pub(super) struct FewChild {
    pub(super) node: Arc<Node>,
    pub(super) offset: u32,
}

impl FewChild {
    pub(super) fn new(node: Arc<Node>) -> Self {
        let offset = node.offset();
        Self { node, offset }
    }
}

impl Children {
    /// The children as they are listed: all, if they are few, else none.
    pub(super) fn few(&self) -> &[FewChild] {
        match self {
            Children::Few(few) => few,
            _ => &[],
        }
    }

    /// Adds one to none or few.
    pub(super) fn push(&mut self, child: Arc<Node>) {
        let child = FewChild::new(child);
        match self {
            Children::Few(few) => few.push(child),
            Children::None => *self = Children::Few(Box::new(vec![child])),
            Children::Hub(_) => unreachable!("a hub's children are added to its shards"),
        }
    }

    /// Takes out one of few, the one at `at`.
    pub(super) fn remove(&mut self, at: usize) -> Arc<Node> {
        let Children::Few(few) = self else { unreachable!("one of few was found") };
        let child = few.swap_remove(at);
        if few.capacity() > KEPT_CHILDREN && few.len() * 4 < few.capacity() {
            few.shrink_to(few.len() * 2);
        }
        child.node
    }

    /// Gives up an empty list, which is kept only while the view has slots for
    /// children.
    pub(super) fn tidy(&mut self) {
        if let Children::Few(few) = self
            && few.is_empty()
        {
            *self = Children::None;
        }
    }

    /// Whether a child hangs at `offset`.
    pub(super) fn any_at(&self, offset: u32) -> bool {
        match self {
            Children::Hub(hub) => hub.any_at(offset),
            children => children.few().iter().any(|child| child.offset == offset),
        }
    }

    /// The deepest offset at which a child hangs, `without` one of few; 0
    /// where there is none.
    pub(super) fn end(&self, without: Option<&Node>) -> u32 {
        match self {
            Children::Hub(hub) => hub.end(),
            children => {
                let gone = |child: &&FewChild| {
                    !without.is_some_and(|node| std::ptr::eq(&*child.node, node))
                };
                children.few().iter().filter(gone).map(|child| child.offset).max().unwrap_or(0)
            }
        }
    }

    /// An owner of every child.
    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        match self {
            Children::Hub(hub) => hub.children(),
            children => children.few().iter().map(|child| child.node.clone()).collect(),
        }
    }
}

#[derive(Default)]
struct Extra {
    /// What workers hold that hold something behind a hole: slot, positions.
    /// Their level in the view is what leads up to the first hole.
    holes: Vec<(u32, Mask)>,
    /// Positions whose name in the column is not canonical: when the block
    /// was made or retaken, the lookup's entry was another place's.
    flags: Mask,
}

impl Node {
    /// A node that hangs below the first `offset` blocks of `parent`'s run
    /// once it is linked there; `columns` holds at least one block, and
    /// `levels` says who holds it.
    pub(super) fn new(
        parent: Weak<Node>,
        offset: u32,
        columns: Columns,
        len: u32,
        levels: &[Level],
    ) -> Arc<Self> {
        let view = ViewBox::new(columns.window(len), levels, NextKids::default(), None);
        let node = Arc::new(Self {
            view: Published::new(view, &columns),
            first: columns.local(0),
            offset,
            witness: Witness::new(),
            half: RwLock::new(Half {
                parent,
                children: Children::None,
                columns,
                extra: None,
                detached: false,
            }),
        });
        expose(&node);
        node
    }

    /// The root: no blocks, a hub for children from the start.
    pub(super) fn root(hub: Arc<Hub>) -> Arc<Self> {
        let columns = Columns::empty();
        let view = ViewBox::new(columns.window(0), &[], NextKids::default(), Some(&hub));
        let node = Arc::new(Self {
            view: Published::new(view, &columns),
            first: LocalHash(0),
            offset: ROOT,
            witness: Witness::new(),
            half: RwLock::new(Half {
                parent: Weak::new(),
                children: Children::Hub(hub),
                columns,
                extra: None,
                detached: false,
            }),
        });
        expose(&node);
        node
    }

    /// Whether this is the root.
    #[inline]
    pub(super) fn is_root(&self) -> bool {
        self.offset == ROOT
    }

    /// The run's first block.
    #[inline]
    pub(super) fn first(&self) -> LocalHash {
        self.first
    }

    /// How many blocks of the parent's run lie above.
    #[inline]
    pub(super) fn offset(&self) -> u32 {
        self.offset
    }

    /// Has the processor fetch the view and the columns.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        self.view.prefetch();
    }

    /// Has the processor fetch what readers load of a node, which may lie across
    /// two lines.
    #[inline(always)]
    pub(super) fn prefetch_shown(node: *const Node) {
        prefetch(node.wrapping_byte_add(std::mem::offset_of!(Node, view)));
        prefetch(node.wrapping_byte_add(std::mem::offset_of!(Node, offset)));
    }

    /// What a reader asks for after the node: who knows it ahead has both
    /// fetched at once.
    #[inline]
    pub(super) fn hint(&self) -> *const Line {
        self.view.hint()
    }

    /// The same, and as much of it as there is.
    pub(super) fn hint_under(&self, guard: &Guard) -> *const Line {
        self.view.hint_under(guard)
    }

    /// Has the processor fetch a node that will be owned once more, or asked
    /// for its key, which may begin in the next line; it need not be there.
    #[inline]
    pub(super) fn prefetch_all(node: *const Node) {
        prefetch(node);
        prefetch(node.wrapping_byte_add(std::mem::offset_of!(Node, offset)));
    }

    /// Shows readers where the half's columns are now: longer ones before the
    /// view that needs them is published, shorter ones after the view that does
    /// without.
    pub(super) fn move_columns(&self, half: &Half) {
        self.view.move_columns(&half.columns);
    }

    /// The view of this moment.
    #[inline]
    pub(super) fn view<'g>(&'g self, guard: &'g Guard) -> View<'g> {
        self.witness.read();
        self.view.load(guard)
    }

    /// Publishes the next view; the one before, if that is an allocation, is
    /// to be retired. The caller holds the lock exclusively, which the half he
    /// shows proves.
    #[inline]
    #[must_use]
    pub(super) fn publish(&self, _: &mut Half, view: ViewBox) -> Option<ViewBox> {
        self.view.publish(view)
    }

    #[inline]
    pub(super) fn read(&self, rank: Rank) -> ReadGuard<'_, Half> {
        self.half.read(rank)
    }

    #[inline]
    pub(super) fn write(&self, rank: Rank) -> WriteGuard<'_, Half> {
        self.half.write(rank)
    }

    /// Bytes of the node with its view and columns, its table of children
    /// left out. The caller holds the lock, which the half he shows proves.
    pub(super) fn bytes_in_all(&self, half: &Half, guard: &Guard) -> usize {
        let counts = 2 * size_of::<usize>();
        size_of::<Self>() + counts + self.view(guard).bytes() + half.columns.bytes()
    }

    /// The same with the table, which an empty node has only after a panic.
    pub(super) fn bytes_with_table(&self, half: &Half, guard: &Guard) -> usize {
        self.bytes_in_all(half, guard) + half.hub().map_or(0, |hub| hub.bytes())
    }
}

impl Half {
    /// The children's table, where they are many.
    pub(super) fn hub(&self) -> Option<&Arc<Hub>> {
        match &self.children {
            Children::Hub(hub) => Some(hub),
            _ => None,
        }
    }

    /// What `slot` holds, if it holds something behind a hole.
    pub(super) fn mask(&self, slot: u32) -> Option<&Mask> {
        let extra = self.extra.as_deref()?;
        extra.holes.iter().find(|(of, _)| *of == slot).map(|(_, mask)| mask)
    }

    /// Every worker that holds something behind a hole, and what it holds.
    pub(super) fn masks(&self) -> impl Iterator<Item = (u32, &Mask)> {
        let holes = self.extra.as_deref().map(|extra| &extra.holes);
        holes.into_iter().flatten().map(|(slot, mask)| (*slot, mask))
    }

    /// Sets or takes away `slot`'s mask.
    pub(super) fn set_mask(&mut self, slot: u32, mask: Option<Mask>) {
        if mask.is_none() && self.extra.is_none() {
            return;
        }
        let extra = self.extra.get_or_insert_default();
        let at = extra.holes.iter().position(|(of, _)| *of == slot);
        match (at, mask) {
            (Some(at), Some(mask)) => extra.holes[at].1 = mask,
            (Some(at), None) => {
                drop(extra.holes.swap_remove(at));
                if extra.holes.capacity() > 8 && extra.holes.len() * 4 < extra.holes.capacity() {
                    extra.holes.shrink_to(extra.holes.len() * 2);
                }
            }
            (None, Some(mask)) => extra.holes.push((slot, mask)),
            (None, None) => {}
        }
        self.drop_idle_extra();
    }

    /// Whether `slot` holds the block at `at`; `levels` are the node's.
    pub(super) fn holds(&self, levels: &[Level], slot: u32, at: u32) -> bool {
        match self.mask(slot) {
            Some(mask) => mask.get(at),
            None => levels::cutoff_of(levels, slot) > at,
        }
    }

    /// Whether anybody but `slot` holds the block at `at` behind a hole.
    pub(super) fn masked_by_others(&self, slot: u32, at: u32) -> bool {
        let extra = self.extra.as_deref();
        extra.is_some_and(|extra| extra.holes.iter().any(|(of, mask)| *of != slot && mask.get(at)))
    }

    /// One more than the last position that somebody holds behind a hole.
    pub(super) fn masks_end(&self) -> u32 {
        let extra = self.extra.as_deref();
        extra.map_or(0, |extra| extra.holes.iter().map(|(_, mask)| mask.end()).max().unwrap_or(0))
    }

    /// Whether anything out of the ordinary is noted here.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.extra.is_none()
    }

    /// Whether any position is flagged.
    pub(super) fn has_flags(&self) -> bool {
        self.extra.as_deref().is_some_and(|extra| extra.flags.end() > 0)
    }

    /// Whether the name at `at` is not canonical.
    #[inline]
    pub(super) fn flagged(&self, at: u32) -> bool {
        self.extra.as_deref().is_some_and(|extra| extra.flags.get(at))
    }

    /// Notes whether the name at `at` is not canonical.
    pub(super) fn set_flag(&mut self, at: u32, flagged: bool) {
        if flagged {
            self.extra.get_or_insert_default().flags.set(at);
        } else if let Some(extra) = &mut self.extra {
            extra.flags.clear(at);
            self.drop_idle_extra();
        }
    }

    /// Whether the block at `at` goes by `name` for those who hold it under
    /// the column's name.
    #[inline]
    pub(super) fn canonical(&self, at: u32, name: SequenceHash) -> bool {
        self.columns.name(at) == name && !self.flagged(at)
    }

    fn drop_idle_extra(&mut self) {
        if self.extra.as_deref().is_some_and(|e| e.holes.is_empty() && e.flags.end() == 0) {
            self.extra = None;
        }
    }

    /// Everything that keeps the run as long as it is: who holds its end and
    /// what hangs below it. Beyond it nothing is left to keep.
    pub(super) fn needed(&self, levels: &[Level], children_end: u32) -> u32 {
        levels::deepest(levels).max(self.masks_end()).max(children_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Block;

    /// Fails if the list of masks stays as long as it ever was.
    #[test]
    fn holes_of_many_that_are_closed_take_no_room_beside_one_that_stays() {
        let mut columns = Columns::with_capacity(1);
        columns.push(Block::default());
        let node = Node::new(Weak::new(), 0, columns, 1, &[]);
        let mut half = node.write(Rank::Child);
        let mut mask = Mask::prefix(3);
        mask.clear(1);
        for slot in 0..1_000 {
            half.set_mask(slot, Some(mask.clone()));
        }
        for slot in 0..999 {
            half.set_mask(slot, None);
        }
        assert!(half.mask(999).is_some());
        let room = half.extra.as_deref().map_or(0, |extra| extra.holes.capacity());
        assert!(room <= 8, "room for {room} masks, one there");
    }
}

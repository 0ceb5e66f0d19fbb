//! The children of a node that has few, as its view names them: a small table
//! of slots in the view itself, searched from the tag of a key on.
//!
//! A child comes into a slot that is empty, and goes from its slot, without
//! another view: a prompt whose suffixes come and go is not published for each.
//! Where there is no room nearby, or far too much, the next view has a table of
//! its own, made of this one without a look at any child.

use super::key::{Key, MOST_LISTED};
use super::node::Node;
use super::place::SPARE_BITS;
#[cfg(all(test, not(kvradix_loom)))]
use super::published::Line;
use super::slot::{Entry, Slot, Table};
use crate::LocalHash;
use crate::sync::{Fold, Guard};

/// The table of a view.
#[derive(Clone, Copy, Default)]
pub(super) struct Kids<'a>(Table<'a>);

/// The table that the next view is to have.
#[derive(Default)]
pub(super) struct NextKids<'a> {
    /// How many there will be.
    count: usize,
    from: Kids<'a>,
    /// Those that are in no table yet.
    list: &'a [Entry],
    /// One of the table that is left out.
    without: Option<&'a Node>,
    /// One more.
    with: Option<Entry>,
}

/// Slots of the smallest table.
const FEWEST_SLOTS: usize = 4;
/// Slots that are left empty for those who come, or a third of the children.
const SPARE: usize = 2;
/// How far from its home a child is put into a table that readers search.
const NEARBY: usize = 8;

/// Slots of a table made for so many.
#[inline]
const fn slots_for(kids: usize) -> usize {
    if kids == 0 {
        return 0;
    }
    let spare = if kids / 3 > SPARE { kids / 3 } else { SPARE };
    (kids + spare).next_power_of_two()
}

const _: () = assert!(slots_for(1) == FEWEST_SLOTS);
const _: () = assert!(slots_for(MOST_LISTED) <= 1 << SPARE_BITS, "a tag is too short");

/// Names `node`; its parent's half owns it for as long as views do.
pub(super) fn entry(node: &Node, fold: Fold) -> Entry {
    Entry::new(node, tag(node, fold))
}

/// The tag of a node's key.
#[inline]
fn tag(node: &Node, fold: Fold) -> u32 {
    Key::new(fold, node.offset(), node.first()).tag()
}

/// Where a search for a tag begins.
#[inline]
fn home(tag: u32) -> usize {
    tag as usize
}

impl<'a> Kids<'a> {
    /// The table of these slots.
    #[inline]
    pub(super) fn new(slots: &'a [Slot]) -> Self {
        Self(Table::new(slots))
    }

    /// How many there are.
    pub(super) fn len(self) -> usize {
        self.0.entries().count()
    }

    /// How many slots there are.
    #[inline]
    pub(super) fn capacity(self) -> usize {
        self.0.slots().len()
    }

    /// Whether it names this very node.
    pub(super) fn name(self, node: &Node) -> bool {
        self.0.names(node)
    }

    /// The child of this key.
    #[inline]
    pub(super) fn find<'g>(
        self,
        offset: u32,
        local: LocalHash,
        fold: Fold,
        guard: &'g Guard,
    ) -> Option<&'g Node>
    where
        'a: 'g,
    {
        if self.0.slots().is_empty() {
            return None;
        }
        let key = Key::new(fold, offset, local);
        self.0.find(home(key.tag()), key, guard)
    }

    /// Renews the hint of where readers of `child` go on.
    pub(super) fn renew_hint(self, child: &Node, fold: Fold, guard: &Guard) {
        self.0.renew_hint(home(tag(child, fold)), child, guard);
    }

    /// Whether one more can come into the table as it is. Under the node's
    /// exclusive lock.
    #[inline]
    pub(super) fn has_room(self, kid: Entry) -> bool {
        self.0.room(home(kid.tag()), NEARBY).is_some()
    }

    /// Puts one more into the table, which has room for it. Under the node's
    /// exclusive lock.
    #[inline]
    pub(super) fn put(self, kid: Entry) {
        self.0.put(home(kid.tag()), kid);
    }

    /// Takes a child that it names out of the table. Under the node's
    /// exclusive lock.
    #[inline]
    pub(super) fn take(self, child: &Node, fold: Fold) {
        let taken = self.0.take(home(tag(child, fold)), child);
        debug_assert!(taken.is_some(), "the view lists the child");
    }

    /// Whether a table of so many slots is far too large for `kids`.
    #[inline]
    pub(super) fn is_idle(self, kids: usize) -> bool {
        self.capacity() > FEWEST_SLOTS && kids * 4 < self.capacity()
    }

    /// These, `count` of them.
    pub(super) fn same(self, count: usize) -> NextKids<'a> {
        NextKids { count, from: self, ..NextKids::default() }
    }

    /// These and one more, `count` with it.
    pub(super) fn with(self, kid: Entry, count: usize) -> NextKids<'a> {
        NextKids { with: Some(kid), ..self.same(count) }
    }

    /// These but `node`, `count` without it.
    pub(super) fn without(self, node: &'a Node, count: usize) -> NextKids<'a> {
        NextKids { without: Some(node), ..self.same(count) }
    }

    /// The hint of where readers of `child` go on.
    #[cfg(all(test, not(kvradix_loom)))]
    pub(super) fn hint_of(self, child: &Node) -> Option<*const Line> {
        self.0.hint_of(child)
    }
}

impl<'a> From<&'a [Entry]> for NextKids<'a> {
    /// Those of a list.
    fn from(list: &'a [Entry]) -> Self {
        Self { count: list.len(), list, ..Self::default() }
    }
}

impl NextKids<'_> {
    /// How many slots there will be.
    #[inline]
    pub(super) fn slots(&self) -> usize {
        slots_for(self.count)
    }

    /// Slots that may be copied as they are, before `add` puts what is missing:
    /// most views change nothing here. Slots whose child went are copied too.
    #[inline]
    pub(super) fn copied(&self) -> Option<&[Slot]> {
        let Self { from, list, without, with, .. } = self;
        let room = with.is_none_or(|kid| from.has_room(kid));
        let fits = from.capacity() == self.slots() && list.is_empty() && without.is_none() && room;
        fits.then(|| from.0.slots())
    }

    /// Fills slots that are empty but for what was copied; nobody sees them
    /// yet.
    #[inline]
    pub(super) fn add(&self, slots: &[Slot], copied: bool) {
        let Self { from, list, without, with, .. } = self;
        let table = Kids::new(slots);
        if !copied {
            let gone = without.map(std::ptr::from_ref);
            let stays = |kid: &Entry| Some(kid.child().as_ptr().cast_const()) != gone;
            from.0.entries().filter(stays).for_each(|kid| table.put(kid));
        }
        list.iter().chain(with).for_each(|kid| table.put(*kid));
    }
}

#[cfg(all(test, not(kvradix_loom)))]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::super::columns::Columns;
    use super::*;
    use crate::sync::{Arc, Fold, Weak, pin};
    use crate::{Block, SequenceHash};

    fn child(offset: u32, local: u64) -> Arc<Node> {
        let mut columns = Columns::with_capacity(1);
        columns.push(Block { sequence: SequenceHash(local), local: LocalHash(local) });
        Node::new(Weak::new(), offset, columns, 1, &[])
    }

    fn made_of(next: &NextKids<'_>) -> Vec<Slot> {
        let made: Vec<_> = (0..next.slots()).map(|_| Slot::empty()).collect();
        next.add(&made, false);
        made
    }

    /// Tables of every size, made one of the other as children come and go, in
    /// place where there is room.
    #[test]
    fn a_table_names_each_of_its_children_and_nobody_else() {
        let (fold, mut rng) = (Fold::random(), SmallRng::seed_from_u64(3));
        let keys = |n: usize| ((n % 7) as u32 + 1, n as u64 / 7);
        let nodes: Vec<_> = (0..300).map(|n| child(keys(n).0, keys(n).1)).collect();
        let (mut slots, mut there): (Vec<Slot>, Vec<usize>) = (Vec::new(), Vec::new());
        let (mut sizes, mut in_place) = (BTreeSet::new(), [0; 2]);
        let guard = pin();
        for turn in 0..4_000 {
            let kids = Kids::new(&slots);
            // Grows for some time, then shrinks.
            let grows = rng.random_ratio(if turn / 1_000 % 2 == 0 { 3 } else { 1 }, 4);
            let absent: Vec<_> = (0..nodes.len()).filter(|n| !there.contains(n)).collect();
            let next = if !absent.is_empty() && (grows || there.is_empty()) {
                let one = absent[rng.random_range(0..absent.len())];
                there.push(one);
                let kid = entry(&nodes[one], fold);
                if kids.has_room(kid) {
                    kids.put(kid);
                    in_place[0] += 1;
                    None
                } else {
                    Some(kids.with(kid, there.len()))
                }
            } else {
                let one = there.swap_remove(rng.random_range(0..there.len()));
                if kids.is_idle(there.len()) {
                    Some(kids.without(&nodes[one], there.len()))
                } else {
                    kids.take(&nodes[one], fold);
                    in_place[1] += 1;
                    None
                }
            };
            if let Some(next) = next {
                assert_eq!(next.slots(), slots_for(there.len()));
                let made = made_of(&next);
                slots = made;
                sizes.insert(slots.len());
            }
            let kids = Kids::new(&slots);
            assert_eq!(kids.len(), there.len());
            assert!(!kids.is_idle(there.len()));
            for (n, node) in nodes.iter().enumerate() {
                let (offset, local) = keys(n);
                let found = kids.find(offset, LocalHash(local), fold, &guard);
                let named = found.is_some_and(|found| std::ptr::eq(found, &**node));
                assert_eq!(named, there.contains(&n));
                assert_eq!(kids.name(node), named);
            }
        }
        assert!(sizes.len() > 6, "{sizes:?}");
        assert!(in_place.iter().all(|count| *count > 1_000), "{in_place:?}");
        let list: Vec<_> = there.iter().map(|n| entry(&nodes[*n], fold)).collect();
        let made = made_of(&NextKids::from(&list[..]));
        let kids = Kids::new(&made);
        assert!(there.iter().all(|n| kids.name(&nodes[*n])));
    }
}

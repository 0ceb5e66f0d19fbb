//! The children of a node that has few, as its view names them: a small hash
//! table in the view itself, of two words a slot.
//!
//! The first has a child's address and the tag of its key, which also says where
//! in the table the search begins: so a view is made of the one before without
//! a look at any child, and who looks for a key reads one line of the table
//! and the child. The second notes where its readers go on.

use super::key::{Key, MOST_LISTED};
use super::node::Node;
use super::place::{SPARE_BITS, pack, unpack_bits, unpack_node};
use super::view::Ahead;
use crate::LocalHash;
use crate::sync::{Arc, Fold, Hint};

/// A child's slot.
#[derive(Clone)]
pub(super) struct Kid {
    /// The child's address and the tag of its key; 0 where there is none.
    word: u64,
    /// What readers of the child ask for next, or asked for.
    ahead: Hint<Ahead>,
}

/// The table of a view.
#[derive(Clone, Copy, Default)]
pub(super) struct Kids<'a> {
    slots: &'a [Kid],
    count: usize,
}

/// The table that the next view is to have.
pub(super) struct NextKids<'a> {
    from: Kids<'a>,
    /// Whether `from` is a table, not a list.
    placed: bool,
    /// One of them that is left out.
    without: Option<Kid>,
    /// One more.
    with: Option<Kid>,
}

/// Kids for which a table is as small as can be: they are in one line, so a
/// full table costs nothing.
const DENSE: usize = 8;

/// Slots of a table of so many.
#[inline]
pub(super) const fn slots_for(kids: usize) -> usize {
    match kids {
        0 => 0,
        1..=DENSE => kids.next_power_of_two(),
        _ => (kids + kids / 3).next_power_of_two(),
    }
}

const _: () = assert!(slots_for(MOST_LISTED) <= 1 << SPARE_BITS, "a tag is too short");

impl Kid {
    /// Names `node`; its parent's half owns it for as long as views do.
    pub(super) fn new(node: &Arc<Node>, fold: Fold) -> Self {
        let word = pack(node, Key::new(fold, node.offset(), node.first()).tag());
        Self { word, ahead: Hint::new(node.ahead()) }
    }

    /// An empty slot.
    #[cfg(all(test, not(kvradix_loom)))]
    fn none() -> Self {
        Self { word: 0, ahead: Hint::new(std::ptr::null()) }
    }

    fn is_some(&self) -> bool {
        self.word != 0
    }

    /// Whether it names this very node.
    fn is(&self, node: &Node) -> bool {
        std::ptr::eq(unpack_node(self.word), node)
    }

    /// Where a table of so many slots is searched for it first.
    fn home(&self, slots: usize) -> usize {
        unpack_bits(self.word) as usize & (slots - 1)
    }
}

impl<'a> Kids<'a> {
    /// The table of these slots, which has `count` kids.
    #[inline]
    pub(super) fn new(slots: &'a [Kid], count: usize) -> Self {
        Self { slots, count }
    }

    /// How many there are, as the slots have it.
    pub(super) fn len(self) -> usize {
        self.slots.iter().filter(|kid| kid.is_some()).count()
    }

    /// Whether it names this very node.
    pub(super) fn name(self, node: &Node) -> bool {
        self.slots.iter().any(|kid| kid.is(node))
    }

    /// Those that may be the child of this key, by their tags.
    #[inline]
    pub(super) fn candidates(
        self,
        offset: u32,
        local: LocalHash,
        fold: Fold,
    ) -> impl Iterator<Item = *const Node> {
        let tag = Key::new(fold, offset, local).tag();
        let alike = self.probe(tag).filter(move |kid| unpack_bits(kid.word) == tag);
        alike.map(|kid| {
            kid.ahead.prefetch();
            unpack_node(kid.word).cast_const()
        })
    }

    /// Notes where readers of `child` go on from it.
    pub(super) fn point_ahead(self, child: &Node, fold: Fold) {
        let tag = Key::new(fold, child.offset(), child.first()).tag();
        if let Some(kid) = self.probe(tag).find(|kid| kid.is(child)) {
            kid.ahead.set(child.ahead());
        }
    }

    /// The slots from the home of a tag to the first empty one.
    #[inline]
    fn probe(self, tag: u32) -> impl Iterator<Item = &'a Kid> {
        let Self { slots, .. } = self;
        let mask = slots.len().wrapping_sub(1);
        let probed = (0..slots.len()).map(move |step| &slots[(tag as usize + step) & mask]);
        probed.take_while(|kid| kid.is_some())
    }

    /// These and one more.
    pub(super) fn with(self, kid: Kid) -> NextKids<'a> {
        NextKids { with: Some(kid), ..self.into() }
    }

    /// These but `node`.
    pub(super) fn without(self, node: &Node) -> NextKids<'a> {
        let without = self.slots.iter().find(|kid| kid.is(node)).cloned();
        NextKids { without, ..self.into() }
    }
}

impl<'a> From<Kids<'a>> for NextKids<'a> {
    fn from(from: Kids<'a>) -> Self {
        Self { from, placed: true, without: None, with: None }
    }
}

impl<'a> From<&'a [Kid]> for NextKids<'a> {
    /// Those of a list.
    fn from(kids: &'a [Kid]) -> Self {
        let from = Kids::new(kids, kids.len());
        Self { from, placed: false, without: None, with: None }
    }
}

impl NextKids<'_> {
    /// How many there will be.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.from.count - usize::from(self.without.is_some()) + usize::from(self.with.is_some())
    }

    /// Fills the slots, `slots_for(count)` of them, all empty.
    #[inline]
    pub(super) fn fill(&self, slots: &mut [Kid]) {
        let Self { from, placed, without, with } = self;
        if *placed && without.is_none() && slots.len() == from.slots.len() {
            slots.clone_from_slice(from.slots);
        } else {
            let gone = without.as_ref().map_or(0, |kid| kid.word);
            for kid in from.slots.iter().filter(|kid| kid.is_some() && kid.word != gone) {
                put(slots, kid.clone());
            }
        }
        if let Some(kid) = with {
            put(slots, kid.clone());
        }
    }
}

/// Puts a kid into the first free slot from its home on; there is one.
fn put(slots: &mut [Kid], kid: Kid) {
    let (home, mask) = (kid.home(slots.len()), slots.len() - 1);
    let free = (0..slots.len()).map(|step| (home + step) & mask).find(|at| !slots[*at].is_some());
    slots[free.expect("a slot for each")] = kid;
}

#[cfg(all(test, not(kvradix_loom)))]
impl Kids<'_> {
    /// What is noted of where readers of `child` go on.
    pub(super) fn noted(self, child: &Node) -> Option<*const Ahead> {
        self.slots.iter().find(|kid| kid.is(child)).map(|kid| kid.ahead.get())
    }
}

#[cfg(all(test, not(kvradix_loom)))]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::super::columns::Columns;
    use super::*;
    use crate::sync::{Fold, Weak};
    use crate::{Block, SequenceHash};

    fn child(offset: u32, local: u64) -> Arc<Node> {
        let mut columns = Columns::with_capacity(1);
        columns.push(Block { sequence: SequenceHash(local), local: LocalHash(local) });
        Node::new(Weak::new(), offset, columns, 1, &[])
    }

    /// Tables of every size, full ones among them, made one of the other as
    /// children come and go.
    #[test]
    fn a_table_names_each_of_its_children_and_nobody_else() {
        let (fold, mut rng) = (Fold::random(), SmallRng::seed_from_u64(3));
        let keys = |n: u64| ((n % 7) as u32 + 1, n / 7);
        let nodes: Vec<_> = (0..300).map(|n| child(keys(n).0, keys(n).1)).collect();
        let (mut slots, mut there): (Vec<Kid>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut sizes = std::collections::BTreeSet::new();
        for turn in 0..4_000 {
            let kids = Kids::new(&slots, there.len());
            // Grows for some time, then shrinks.
            let grows = rng.random_ratio(if turn / 1_000 % 2 == 0 { 3 } else { 1 }, 4);
            let next = match (0..nodes.len()).find(|n| !there.contains(n)) {
                Some(_) if grows || there.is_empty() => {
                    let absent: Vec<_> = (0..nodes.len()).filter(|n| !there.contains(n)).collect();
                    let one = absent[rng.random_range(0..absent.len())];
                    there.push(one);
                    kids.with(Kid::new(&nodes[one], fold))
                }
                _ => {
                    let one = there.swap_remove(rng.random_range(0..there.len()));
                    kids.without(&nodes[one])
                }
            };
            assert_eq!(next.count(), there.len());
            let mut made = vec![Kid::none(); slots_for(there.len())];
            next.fill(&mut made);
            slots = made;
            sizes.insert(slots.len());
            let kids = Kids::new(&slots, there.len());
            assert_eq!(kids.len(), there.len());
            for (n, node) in nodes.iter().enumerate() {
                let (offset, local) = keys(n as u64);
                let named = kids
                    .candidates(offset, LocalHash(local), fold)
                    .any(|candidate| std::ptr::eq(candidate, &**node));
                assert_eq!(named, there.contains(&n));
                assert_eq!(kids.name(node), named);
            }
        }
        assert!(sizes.len() > 6, "{sizes:?}");
        let list: Vec<_> = there.iter().map(|n| Kid::new(&nodes[*n], fold)).collect();
        let mut made = vec![Kid::none(); slots_for(list.len())];
        NextKids::from(&list[..]).fill(&mut made);
        let kids = Kids::new(&made, list.len());
        assert!(there.iter().all(|n| kids.name(&nodes[*n])));
    }
}

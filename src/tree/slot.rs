//! A child's slot, and tables of them that readers search without a lock while
//! children come and go.
//!
//! A slot goes from empty to a child to removed and never back, so a reader
//! that follows a slot sees one child at most; it checks the child's own key.
//! Its word has a few bits of the key's hash beside the child's address: a key
//! that is not there mostly costs one look at one line. A second word is a hint
//! of where the child's readers go on, and for how many lines.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use super::key::Key;
use super::node::Node;
use super::place::{pack, unpack_bits, unpack_node};
use super::published::{Line, are_beside, prefetch_hinted};
use crate::sync::{AtomicU64, Guard, Hint, Mutant, Ordering, mutant};

/// One child's slot.
pub(super) struct Slot {
    /// `EMPTY`, `REMOVED`, or the child's address and the tag of its key.
    word: AtomicU64,
    /// What readers of the child ask for next, or asked for.
    hint: Hint<Line>,
}

const EMPTY: u64 = 0;
/// No node's address.
const REMOVED: u64 = 1;

/// What is to stand in a child's slot. It owns nothing.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    word: u64,
    hint: *const Line,
}

impl Entry {
    /// Names `child`, whose key has this tag.
    #[inline]
    pub(super) fn new(child: &Node, tag: u32) -> Self {
        Self { word: pack(child, tag), hint: child.hint() }
    }

    /// The same for another table that is to name `child`: the hint is as before,
    /// unless readers go on elsewhere now.
    pub(super) fn again(self, child: &Node) -> Self {
        let now = child.hint();
        Self { hint: if are_beside(now, self.hint) { self.hint } else { now }, ..self }
    }

    /// The tag of the child's key.
    #[inline]
    pub(super) fn tag(self) -> u32 {
        unpack_bits(self.word)
    }

    /// The child.
    #[inline]
    pub(super) fn child(self) -> NonNull<Node> {
        NonNull::new(unpack_node(self.word)).expect("an entry names a child")
    }
}

impl Slot {
    pub(super) fn empty() -> Self {
        Self { word: AtomicU64::new(EMPTY), hint: Hint::new(ptr::null()) }
    }

    /// Copies slots, children and all, to a place for as many.
    ///
    /// # Safety
    /// `to` is allocated, and nobody else's. Nobody writes the slots meanwhile,
    /// not even a hint: the caller has their table's lock exclusively.
    pub(super) unsafe fn copy(from: &[Slot], to: *mut Slot) {
        if cfg!(kvradix_loom) {
            for (at, slot) in from.iter().enumerate() {
                let word = slot.word.load(Ordering::Relaxed);
                let copy = Slot { word: AtomicU64::new(word), hint: Hint::new(slot.hint.get()) };
                // SAFETY: within the place, says the caller.
                unsafe { to.add(at).write(copy) };
            }
        } else {
            // SAFETY: as said; slots are plain words, which readers only read.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        }
    }

    /// The child, if there is one. Steady only under the lock of its table.
    #[inline]
    pub(super) fn entry(&self) -> Option<Entry> {
        // Acquire: pairs with the release in `put`.
        let word = self.word.load(Ordering::Acquire);
        (word > REMOVED).then(|| Entry { word, hint: self.hint.get() })
    }

    /// Whether it names this very node.
    #[inline]
    fn names(&self, node: &Node) -> bool {
        ptr::eq(unpack_node(self.word.load(Ordering::Relaxed)), node)
    }
}

/// Slots, a power of two of them or none, probed one after the other.
#[derive(Clone, Copy, Default)]
pub(super) struct Table<'a>(&'a [Slot]);

impl<'a> Table<'a> {
    #[inline]
    pub(super) fn new(slots: &'a [Slot]) -> Self {
        Self(slots)
    }

    /// The slots.
    #[inline]
    pub(super) fn slots(self) -> &'a [Slot] {
        self.0
    }

    /// The slots in the order in which they are probed from `home` on, all
    /// bits of which but the low ones are left out.
    #[inline]
    fn probe(self, home: usize) -> impl Iterator<Item = &'a Slot> {
        let Self(slots) = self;
        let mask = slots.len().wrapping_sub(1);
        (0..slots.len()).map(move |step| &slots[(home + step) & mask])
    }

    /// The same up to the first empty one: what begins at `home` is among them,
    /// since `put` takes the first empty slot and no slot is used twice. Steady
    /// only under the table's lock.
    #[inline]
    fn used(self, home: usize) -> impl Iterator<Item = &'a Slot> {
        // Relaxed: slots change under that lock alone.
        self.probe(home).take_while(|slot| slot.word.load(Ordering::Relaxed) != EMPTY)
    }

    /// The child of this key. The table was found under the guard's pin.
    #[inline]
    pub(super) fn find(self, home: usize, key: Key, _: &Guard) -> Option<&Node> {
        for slot in self.probe(home) {
            // Acquire: pairs with the release in `put`; the child is there.
            let acquire =
                if mutant(Mutant::SlotLoadRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
            let word = slot.word.load(acquire);
            if word == EMPTY {
                return None;
            }
            if word == REMOVED || unpack_bits(word) != key.tag() {
                continue;
            }
            Node::prefetch_shown(unpack_node(word));
            prefetch_hinted(slot.hint.get());
            // SAFETY: neither empty nor removed: a child. It is retired once
            // the table that readers find from then on names it no more; this
            // one was found under the guard's pin, before that if it is an
            // older one.
            let child = unsafe { &*unpack_node(word) };
            if child.first() == key.local && child.offset() == key.offset {
                return Some(child);
            }
        }
        None
    }

    /// The first empty slot within `steps` of `home`. Steady only under the
    /// table's lock.
    #[inline]
    pub(super) fn room(self, home: usize, steps: usize) -> Option<&'a Slot> {
        // Relaxed: only the holder of the lock fills slots.
        self.probe(home).take(steps).find(|slot| slot.word.load(Ordering::Relaxed) == EMPTY)
    }

    /// Puts a child into the first empty slot; there is one. Under the table's
    /// lock.
    #[inline]
    pub(super) fn put(self, home: usize, entry: Entry) {
        let slot = self.room(home, usize::MAX).expect("a table with an empty slot");
        slot.hint.set(entry.hint);
        // Release: pairs with the acquire of whoever follows the slot.
        let release =
            if mutant(Mutant::SlotPutRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        slot.word.store(entry.word, release);
    }

    /// Takes out `child` if a slot of its key holds this very node; the
    /// node that the slot named. Under the table's lock.
    #[inline]
    pub(super) fn take(self, home: usize, child: &Node) -> Option<NonNull<Node>> {
        let same = |slot: &&Slot| {
            if mutant(Mutant::DetachByKey)
                && let Some(held) = slot.entry()
            {
                // SAFETY: a child that the table names is owned, and the
                // caller has the table's lock.
                let held = unsafe { held.child().as_ref() };
                return (held.offset(), held.first()) == (child.offset(), child.first());
            }
            slot.names(child)
        };
        let slot = self.used(home).find(same)?;
        let named = unpack_node(slot.word.load(Ordering::Relaxed));
        // Release: a reader that sees the slot removed and looks elsewhere
        // sees what came first: a moved name's new place.
        let release =
            if mutant(Mutant::SlotTakeRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        slot.word.store(REMOVED, release);
        NonNull::new(named)
    }

    /// Whether it names this very node.
    pub(super) fn names(self, node: &Node) -> bool {
        self.0.iter().any(|slot| slot.names(node))
    }

    /// Renews the hint of where readers of `child` go on. Under the table's lock,
    /// shared at least, if it is one that is copied.
    pub(super) fn renew_hint(self, home: usize, child: &Node, guard: &Guard) {
        if let Some(slot) = self.used(home).find(|slot| slot.names(child)) {
            slot.hint.set(child.hint_under(guard));
        }
    }

    /// The hint of where readers of `child` go on.
    #[cfg(all(test, not(kvradix_loom)))]
    pub(super) fn hint_of(self, child: &Node) -> Option<*const Line> {
        self.0.iter().find(|slot| slot.names(child)).map(|slot| slot.hint.get())
    }

    /// The children from `home` to the first empty slot: all that begin there
    /// are among them. Under the table's lock.
    pub(super) fn probed(self, home: usize) -> impl Iterator<Item = NonNull<Node>> {
        self.used(home).filter_map(Slot::entry).map(Entry::child)
    }

    /// Every child. Steady only under the table's lock.
    pub(super) fn entries(self) -> impl Iterator<Item = Entry> + 'a {
        self.0.iter().filter_map(Slot::entry)
    }
}

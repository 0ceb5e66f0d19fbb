//! The array of a hub's shard: a header and slots in one allocation.
//!
//! A slot goes from empty to a child to removed and never back, so a reader
//! that follows a slot sees one child at most; it checks the child's own key.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::node::Node;
use crate::LocalHash;
use crate::sync::{AtomicPtr, AtomicUsize, Guard, Mutant, Ordering, Witness, mutant};

/// One child's slot.
pub(super) struct Slot {
    /// The hash of the child's key; a filter, written before the child.
    tag: AtomicUsize,
    /// Null, a child, or `removed()`.
    child: AtomicPtr<Node>,
}

/// What stands before the slots.
pub(super) struct Header {
    /// One less than the number of slots, a power of two.
    mask: usize,
    witness: Witness,
}

/// An array, owned.
pub(super) struct SlotBox(NonNull<Header>);

/// An array that somebody keeps alive for `'a`.
#[derive(Clone, Copy)]
pub(super) struct Slots<'a>(NonNull<Header>, PhantomData<&'a Header>);

// SAFETY: slots are atomics; the nodes they name are reached under a pin or
// the shard's lock.
unsafe impl Send for SlotBox {}
// SAFETY: as above.
unsafe impl Sync for SlotBox {}

const SLOTS_AT: usize = size_of::<Header>().next_multiple_of(align_of::<Slot>());

fn layout(capacity: usize) -> Layout {
    let align = align_of::<Header>().max(align_of::<Slot>());
    let size = SLOTS_AT + capacity * size_of::<Slot>();
    Layout::from_size_align(size, align).expect("an array fits the address space")
}

/// What a slot holds whose child was removed: no address of a node.
fn removed() -> *mut Node {
    ptr::without_provenance_mut(align_of::<Node>())
}

impl SlotBox {
    /// Empty slots, `capacity` of them, a power of two.
    pub(super) fn new(capacity: usize) -> Self {
        assert!(capacity.is_power_of_two());
        let layout = layout(capacity);
        // SAFETY: the layout is not empty; header and slots are written
        // within it.
        unsafe {
            let bytes = alloc(layout);
            let Some(header) = NonNull::new(bytes.cast::<Header>()) else {
                handle_alloc_error(layout)
            };
            header.write(Header { mask: capacity - 1, witness: Witness::new() });
            for at in 0..capacity {
                let tag = AtomicUsize::new(0);
                let child = AtomicPtr::new(ptr::null_mut());
                bytes.add(SLOTS_AT).cast::<Slot>().add(at).write(Slot { tag, child });
            }
            Self(header)
        }
    }

    /// The array.
    pub(super) fn get(&self) -> Slots<'_> {
        Slots(self.0, PhantomData)
    }

    /// Gives the array to whoever keeps the pointer.
    pub(super) fn into_raw(self) -> *mut Header {
        std::mem::ManuallyDrop::new(self).0.as_ptr()
    }

    /// # Safety
    /// `header` came from `into_raw` and is owned by nobody else.
    pub(super) unsafe fn from_raw(header: NonNull<Header>) -> Self {
        Self(header)
    }
}

impl Drop for SlotBox {
    /// The children are not the array's: its shard, or the array that has
    /// replaced it, owns them.
    fn drop(&mut self) {
        let slots = self.get().slots().len();
        // SAFETY: the allocation of `new`; whoever drops an array that was
        // shown has waited for the readers.
        unsafe {
            for at in 0..slots {
                ptr::drop_in_place(self.0.as_ptr().byte_add(SLOTS_AT).cast::<Slot>().add(at));
            }
            ptr::drop_in_place(self.0.as_ptr());
            dealloc(self.0.as_ptr().cast(), layout(slots));
        }
    }
}

impl<'a> Slots<'a> {
    /// # Safety
    /// The array behind `header`, if it is not null, lives for `'a`.
    #[inline]
    pub(super) unsafe fn from_ptr(header: *mut Header) -> Option<Self> {
        Some(Self(NonNull::new(header)?, PhantomData))
    }

    #[inline]
    fn slots(self) -> &'a [Slot] {
        // SAFETY: `new` put so many slots there, and they live for `'a`.
        unsafe {
            self.0.as_ref().witness.read();
            let first = self.0.byte_add(SLOTS_AT).cast::<Slot>();
            std::slice::from_raw_parts(first.as_ptr(), self.0.as_ref().mask + 1)
        }
    }

    /// How many slots there are.
    pub(super) fn capacity(self) -> usize {
        self.slots().len()
    }

    /// Bytes of the allocation.
    pub(super) fn bytes(self) -> usize {
        layout(self.capacity()).size()
    }

    /// The slots in the order in which `tag` probes them; its low bits chose
    /// the shard.
    #[inline]
    fn probe(self, tag: usize) -> impl Iterator<Item = &'a Slot> {
        let slots = self.slots();
        let mask = slots.len() - 1;
        (0..slots.len()).map(move |step| &slots[((tag >> 16) + step) & mask])
    }

    /// The child of this key.
    #[inline]
    pub(super) fn find(
        self,
        tag: usize,
        offset: u32,
        local: LocalHash,
        _: &Guard,
    ) -> Option<&Node> {
        // SAFETY: the header lives as long as the slots.
        unsafe { self.0.as_ref() }.witness.read();
        for slot in self.probe(tag) {
            // Acquire: pairs with the release in `put`; tag and child are
            // there.
            let acquire =
                if mutant(Mutant::HubLoadRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
            let child = slot.child.load(acquire);
            if child.is_null() {
                return None;
            }
            // Relaxed: written before the child, once.
            if child == removed() || slot.tag.load(Ordering::Relaxed) != tag {
                continue;
            }
            // SAFETY: neither null nor `removed()`: a child, which is retired
            // through the epoch once it was removed from the slot.
            let child = unsafe { &*child };
            if child.first() == local && child.offset() == offset {
                return Some(child);
            }
        }
        None
    }

    /// Puts a child into the first empty slot; there is one. Under the
    /// shard's lock.
    pub(super) fn put(self, tag: usize, child: NonNull<Node>) {
        // Relaxed: only the holder of the lock fills slots.
        let empty = |slot: &&Slot| slot.child.load(Ordering::Relaxed).is_null();
        let slot = self.probe(tag).find(empty).expect("an array always has an empty slot");
        slot.tag.store(tag, Ordering::Relaxed);
        // Release: pairs with the acquire of whoever follows the slot.
        let release =
            if mutant(Mutant::HubPutRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        slot.child.store(child.as_ptr(), release);
    }

    /// Takes out `child` if a slot of its key holds this very node; the
    /// pointer that the slot owned. Under the shard's lock.
    pub(super) fn take(self, tag: usize, child: &Node) -> Option<NonNull<Node>> {
        let same = |slot: &&Slot| {
            let held = slot.child.load(Ordering::Acquire);
            if mutant(Mutant::DetachByKey) && !held.is_null() && held != removed() {
                // SAFETY: a child that its slot owns.
                let held = unsafe { &*held };
                return (held.offset(), held.first()) == (child.offset(), child.first());
            }
            ptr::eq(held, child)
        };
        let slot = self.probe(tag).find(same)?;
        let owned = slot.child.load(Ordering::Relaxed);
        // Release: a reader that sees the slot removed and looks elsewhere
        // sees what came first: a moved name's new place.
        let release =
            if mutant(Mutant::HubTakeRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        slot.child.store(removed(), release);
        NonNull::new(owned)
    }

    /// Every child and its tag. Steady only under the shard's lock.
    pub(super) fn children(self) -> impl Iterator<Item = (usize, NonNull<Node>)> {
        self.slots().iter().filter_map(|slot| {
            // Acquire: pairs with the release in `put`.
            let child = slot.child.load(Ordering::Acquire);
            let child = NonNull::new(child).filter(|child| child.as_ptr() != removed())?;
            Some((slot.tag.load(Ordering::Relaxed), child))
        })
    }
}

//! The array of a hub's shard: a table of slots. Its size is in the pointer to
//! it.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use super::key::{Key, SHARD_BITS};
use super::node::Node;
use super::slot::{Entry, Slot, Table};
use crate::sync::{Guard, Witness, prefetch};

/// What stands before the slots: nothing but in the models. The alignment
/// frees the low bits of the array's address.
#[repr(align(64))]
pub(super) struct Header {
    witness: Witness,
}

/// The address of an array, the logarithm of its size in the low bits.
const SIZE_BITS: usize = align_of::<Header>() - 1;

/// An array, owned.
pub(super) struct SlotBox(NonNull<Header>);

/// An array that somebody keeps alive for `'a`.
#[derive(Clone, Copy)]
pub(super) struct Slots<'a> {
    header: NonNull<Header>,
    /// One less than the number of slots, a power of two.
    mask: usize,
    of: PhantomData<&'a Header>,
}

// SAFETY: slots are atomics; the nodes they name are reached under a pin or
// the shard's lock.
unsafe impl Send for SlotBox {}
// SAFETY: as above.
unsafe impl Sync for SlotBox {}

const SLOTS_AT: usize = size_of::<Header>().next_multiple_of(align_of::<Slot>());

fn layout(capacity: usize) -> Layout {
    let size = SLOTS_AT + capacity * size_of::<Slot>();
    Layout::from_size_align(size, align_of::<Header>()).expect("an array fits the address space")
}

/// The slot in which `hash` begins to probe, in the low bits.
#[inline]
fn home(hash: u64) -> usize {
    (hash >> SHARD_BITS) as usize
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
            header.write(Header { witness: Witness::new() });
            for at in 0..capacity {
                bytes.add(SLOTS_AT).cast::<Slot>().add(at).write(Slot::empty());
            }
            Self(header.map_addr(|address| address | capacity.trailing_zeros() as usize))
        }
    }

    /// The array.
    pub(super) fn get(&self) -> Slots<'_> {
        Slots::of(self.0)
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
        let Slots { header, mask, .. } = self.get();
        // SAFETY: the allocation of `new`; whoever drops an array that was
        // shown has waited for the readers.
        unsafe {
            for at in 0..=mask {
                ptr::drop_in_place(header.as_ptr().byte_add(SLOTS_AT).cast::<Slot>().add(at));
            }
            ptr::drop_in_place(header.as_ptr());
            dealloc(header.as_ptr().cast(), layout(mask + 1));
        }
    }
}

impl<'a> Slots<'a> {
    /// What `into_raw` gave, taken apart.
    #[inline]
    fn of(tagged: NonNull<Header>) -> Self {
        let size = tagged.addr().get() & SIZE_BITS;
        // SAFETY: the address of an array is not 0.
        let header = unsafe {
            NonNull::new_unchecked(tagged.as_ptr().map_addr(|address| address & !SIZE_BITS))
        };
        Self { header, mask: (1 << size) - 1, of: PhantomData }
    }

    /// # Safety
    /// The array behind `header`, which is null or came from `into_raw`,
    /// lives for `'a`.
    #[inline]
    pub(super) unsafe fn from_ptr(header: *mut Header) -> Option<Self> {
        Some(Self::of(NonNull::new(header)?))
    }

    #[inline]
    pub(super) fn table(self) -> Table<'a> {
        // SAFETY: `new` put so many slots there, and they live for `'a`.
        unsafe {
            self.header.as_ref().witness.read();
            let first = self.header.byte_add(SLOTS_AT).cast::<Slot>();
            Table::new(std::slice::from_raw_parts(first.as_ptr(), self.mask + 1))
        }
    }

    /// How many slots there are.
    pub(super) fn capacity(self) -> usize {
        self.mask + 1
    }

    /// Bytes of the allocation.
    pub(super) fn bytes(self) -> usize {
        layout(self.capacity()).size()
    }

    /// Has the processor fetch where `hash` begins to probe, in an array that
    /// may be gone: only its address is used.
    #[inline]
    pub(super) fn prefetch(tagged: *mut Header, hash: u64) {
        let size = tagged.addr() & SIZE_BITS;
        let first = tagged.map_addr(|address| address & !SIZE_BITS).wrapping_byte_add(SLOTS_AT);
        let at = home(hash) & ((1 << size) - 1);
        prefetch(first.cast::<Slot>().wrapping_add(at));
    }

    /// The child of this key.
    #[inline]
    pub(super) fn find(self, key: Key, guard: &Guard) -> Option<&Node> {
        self.table().find(home(key.hash), key, guard)
    }

    /// Puts a child into the first empty slot; there is one. Under the
    /// shard's lock.
    pub(super) fn put(self, hash: u64, entry: Entry) {
        self.table().put(home(hash), entry);
    }

    /// Renews the hint of where readers of `child` go on.
    pub(super) fn renew_hint(self, hash: u64, child: &Node, guard: &Guard) {
        self.table().renew_hint(home(hash), child, guard);
    }

    /// Takes out `child` if a slot of its key holds this very node; the
    /// pointer that the slot owned. Under the shard's lock.
    pub(super) fn take(self, hash: u64, child: &Node) -> Option<NonNull<Node>> {
        self.table().take(home(hash), child)
    }

    /// The children from the slot where `hash` begins to probe to the first
    /// empty one: all that begin there are among them. Under the shard's lock.
    pub(super) fn probed(self, hash: u64) -> impl Iterator<Item = NonNull<Node>> {
        self.table().probed(home(hash))
    }

    /// Every child's entry. Steady only under the shard's lock.
    pub(super) fn entries(self) -> impl Iterator<Item = Entry> {
        // So many ahead, the nodes are fetched: who walks all looks at each.
        const AHEAD: usize = 16;
        let slots = self.table().slots();
        slots.iter().enumerate().filter_map(move |(at, slot)| {
            if let Some(ahead) = slots.get(at + AHEAD).and_then(Slot::entry) {
                Node::prefetch_all(ahead.child().as_ptr());
            }
            slot.entry()
        })
    }

    /// Every child. Steady only under the shard's lock.
    pub(super) fn children(self) -> impl Iterator<Item = NonNull<Node>> {
        self.entries().map(Entry::child)
    }
}

//! Places: where a block is, packed into one word. So are a child table's
//! slots.

#![allow(unsafe_code)]

use std::ptr;

use super::node::Node;
use crate::sync::Guard;

/// Bits that go with a node's address into a word.
pub(super) const SPARE_BITS: u32 = 12;

/// Most blocks of a run: their positions fit the spare bits.
pub(super) const MAX_RUN: u32 = 1 << SPARE_BITS;

/// A node and a position in its run. A block's place never changes while the
/// block is in the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Place(u64);

/// Nodes are aligned to this, so so many low address bits are free.
const ALIGN_BITS: u32 = align_of::<Node>().trailing_zeros();

/// A node's address and `SPARE_BITS` more in one word, which is not 0.
#[inline]
pub(super) fn pack(node: &Node, bits: u32) -> u64 {
    debug_assert!(bits < 1 << SPARE_BITS);
    // Exposed when the node was made.
    let address = ptr::from_ref(node).addr() as u64;
    // User space has at most 56 address bits wherever this compiles to 64;
    // one that had more would lose them here, so it is asked.
    assert!(address >> (64 - SPARE_BITS + ALIGN_BITS) == 0, "an address of over 56 bits");
    (address >> ALIGN_BITS) << SPARE_BITS | u64::from(bits)
}

/// The bits beside the address.
#[inline]
pub(super) fn unpack_bits(word: u64) -> u32 {
    (word & ((1 << SPARE_BITS) - 1)) as u32
}

/// The node of a word that `pack` has made; null if all address bits are 0.
#[inline]
pub(super) fn unpack_node(word: u64) -> *mut Node {
    ptr::with_exposed_provenance_mut(((word >> SPARE_BITS) << ALIGN_BITS) as usize)
}

impl Place {
    /// Position `at` of `node`.
    #[inline]
    pub(super) fn new(node: &Node, at: u32) -> Self {
        Self(pack(node, at))
    }

    /// The place so many positions further down the same run.
    #[inline]
    pub(super) fn below(self, positions: u32) -> Self {
        debug_assert!(self.at() + positions < MAX_RUN);
        Self(self.0 + u64::from(positions))
    }

    /// The place one position further up the same run, if there is one.
    #[inline]
    pub(super) fn above(self) -> Option<Self> {
        (self.at() > 0).then(|| Self(self.0 - 1))
    }

    /// The position.
    #[inline]
    pub(super) fn at(self) -> u32 {
        unpack_bits(self.0)
    }

    /// Whether both are in one node.
    #[inline]
    pub(super) fn is_beside(self, other: Place) -> bool {
        self.0 >> SPARE_BITS == other.0 >> SPARE_BITS
    }

    /// Has the processor fetch the node's lines.
    #[inline]
    pub(super) fn prefetch_node(self) {
        Node::prefetch_all(unpack_node(self.0));
    }

    /// The node.
    ///
    /// # Safety
    /// The block was in the tree at some moment since the guard was pinned.
    #[inline]
    pub(super) unsafe fn node(self, _: &Guard) -> &Node {
        // SAFETY: the address of a node, exposed by `new`; a node leaves the
        // tree before it is retired, so the pin keeps it, says the caller.
        unsafe { &*unpack_node(self.0) }
    }
}

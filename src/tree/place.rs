//! Places: where a block is, packed into one word.

#![allow(unsafe_code)]

use std::ptr;

use super::node::Node;
use crate::sync::Guard;

/// Bits that a position needs: runs have at most `MAX_RUN` blocks.
const POSITION_BITS: u32 = 12;

/// Most blocks of a run.
pub(super) const MAX_RUN: u32 = 1 << POSITION_BITS;

/// A node and a position in its run. A block's place never changes while the
/// block is in the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Place(u64);

/// Nodes are aligned to this, so so many low address bits are free.
const ALIGN_BITS: u32 = align_of::<Node>().trailing_zeros();

impl Place {
    /// Position `at` of `node`.
    #[inline]
    pub(super) fn new(node: &Node, at: u32) -> Self {
        debug_assert!(at < MAX_RUN);
        // Exposed when the node was made.
        let address = ptr::from_ref(node).addr() as u64;
        // User space has at most 56 address bits wherever this compiles to
        // 64; one that had more would lose them here, so it is asked.
        assert!(address >> (64 - POSITION_BITS + ALIGN_BITS) == 0, "an address of over 56 bits");
        Self((address >> ALIGN_BITS) << POSITION_BITS | u64::from(at))
    }

    /// The place so many positions further down the same run.
    #[inline]
    pub(super) fn below(self, positions: u32) -> Self {
        debug_assert!(self.at() + positions < MAX_RUN);
        Self(self.0 + u64::from(positions))
    }

    /// The position.
    #[inline]
    pub(super) fn at(self) -> u32 {
        (self.0 & u64::from(MAX_RUN - 1)) as u32
    }

    /// Whether both are in one node.
    #[inline]
    pub(super) fn is_beside(self, other: Place) -> bool {
        self.0 >> POSITION_BITS == other.0 >> POSITION_BITS
    }

    #[inline]
    fn address(self) -> usize {
        ((self.0 >> POSITION_BITS) << ALIGN_BITS) as usize
    }

    /// The node.
    ///
    /// # Safety
    /// The block was in the tree at some moment since the guard was pinned.
    #[inline]
    pub(super) unsafe fn node(self, _: &Guard) -> &Node {
        // SAFETY: the address of a node, exposed by `new`; a node leaves the
        // tree before it is retired, so the pin keeps it, says the caller.
        unsafe { &*ptr::with_exposed_provenance(self.address()) }
    }
}

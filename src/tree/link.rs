//! Nodes that are reached under a pin, and what leads from one to another.

#![allow(unsafe_code)]

use std::ptr;

use super::node::{Half, Node};
use crate::sync::{Arc, Guard, Weak, arc_from_borrowed, weak_from_borrowed};

/// A node that is linked, or that the caller is about to link, for as long as
/// the pin: from then on the tree or, once detached, the retired list owns it.
pub(super) fn borrow_under_pin<'g>(node: &Arc<Node>, _: &'g Guard) -> &'g Node {
    // SAFETY: the node is linked, the caller links it, or he drops the result
    // with the `Arc`.
    unsafe { &*Arc::as_ptr(node) }
}

/// An owner of a node that was reached under a pin.
pub(super) fn owner_of(node: &Node, _: &Guard) -> Arc<Node> {
    // A node's own reference does not reach the counts before it; the address
    // that was exposed when its `Arc` was made does.
    let node = ptr::with_exposed_provenance(ptr::from_ref(node).addr());
    // SAFETY: nodes live in `Arc`s alone; one that is reached under a pin is
    // owned by the tree or by the retired list for as long as the pin is.
    unsafe { arc_from_borrowed(node) }
}

/// A link to a node that was reached under a pin, for a new child of it. The
/// owners' count stays as it is.
pub(super) fn link_to(node: &Node, _: &Guard) -> Weak<Node> {
    let node = ptr::with_exposed_provenance(ptr::from_ref(node).addr());
    // SAFETY: as in `owner_of`.
    unsafe { weak_from_borrowed(node) }
}

/// Where a child's link leads to; `None` where it was taken away. The caller
/// shows the child's half, so he has its lock.
#[inline]
pub(super) fn linked<'g>(child: &Half, _: &'g Guard) -> Option<&'g Node> {
    // Nobody's count is raised: the line that it is in is the readers' too.
    let owned = child.parent.strong_count() > 0;
    // SAFETY: a child whose link is there has not left the tree, so neither
    // has its parent, which is retired once it does, after the guard was
    // pinned.
    owned.then(|| unsafe { &*child.parent.as_ptr() })
}

/// Exposes the address of a new node's `Arc`, for places and `owner_of`.
pub(super) fn expose(node: &Arc<Node>) {
    Arc::as_ptr(node).expose_provenance();
}

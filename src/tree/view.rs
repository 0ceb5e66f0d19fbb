//! What readers see of a node: one immutable view behind an atomic pointer.
//!
//! A view is a header, the owner levels and a few children in one allocation.
//! A writer that holds the node's lock builds the next one and publishes it
//! with one store; a reader loads it under its pin. The view that was
//! replaced is retired, never dropped at once.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use super::columns::{Columns, Window};
use super::hub::Hub;
use super::levels::Level;
use super::node::Node;
use crate::sync::{
    Arc, AtomicPtr, Guard, Mutant, Ordering, Witness, arc_from_borrowed, mutant, prefetch,
};
use crate::{Block, LocalHash};

/// A child as a view names it. It hangs below the run's first `offset`
/// blocks.
#[derive(Clone, Copy)]
pub(super) struct Kid {
    /// The first block of its run.
    pub(super) local: LocalHash,
    node: NonNull<Node>,
    /// How many blocks of the parent's run lie above it.
    pub(super) offset: u32,
}

impl Kid {
    /// Names `node`; its parent's half owns it for as long as views do.
    pub(super) fn new(node: &Arc<Node>) -> Self {
        let (local, offset) = (node.first(), node.offset());
        // SAFETY: an `Arc` points at a value.
        let node = unsafe { NonNull::new_unchecked(Arc::as_ptr(node).cast_mut()) };
        Self { local, node, offset }
    }

    /// Whether it names this very node.
    pub(super) fn is(&self, node: &Node) -> bool {
        ptr::eq(self.node.as_ptr(), node)
    }
}

/// What stands before a view's levels and kids.
#[repr(C)]
struct Header {
    window: Window,
    hub: Option<NonNull<Hub>>,
    levels: u32,
    kids: u32,
    witness: Witness,
    // Behind the header: `levels` levels, then `kids` kids.
}

/// An immutable picture of a node that somebody keeps alive for `'a`.
#[derive(Clone, Copy)]
pub(super) struct View<'a>(NonNull<Header>, PhantomData<&'a Header>);

/// A view not yet published, or no longer.
pub(super) struct ViewBox(NonNull<Header>);

// SAFETY: a view is immutable; what it points at is reached under a pin only.
unsafe impl Send for ViewBox {}
// SAFETY: as above.
unsafe impl Sync for ViewBox {}

const LEVELS_AT: usize = size_of::<Header>().next_multiple_of(align_of::<Level>());

fn layout(levels: usize, kids: usize) -> (Layout, usize) {
    const { assert!(align_of::<Level>() == align_of::<Kid>()) };
    let kids_at = LEVELS_AT + levels * size_of::<Level>();
    let size = kids_at + kids * size_of::<Kid>();
    let align = align_of::<Header>().max(align_of::<Level>());
    let layout = Layout::from_size_align(size, align).expect("a view fits the address space");
    (layout, kids_at)
}

impl ViewBox {
    /// A view with these parts: of `kids` all but `without`, and `with`.
    pub(super) fn new(
        window: Window,
        levels: &[Level],
        kids: &[Kid],
        without: Option<&Node>,
        with: Option<Kid>,
        hub: Option<&Arc<Hub>>,
    ) -> Self {
        let gone = without.and_then(|node| kids.iter().position(|kid| kid.is(node)));
        let (before, after) = match gone {
            Some(at) => (&kids[..at], &kids[at + 1..]),
            None => (kids, &[][..]),
        };
        let count = before.len() + after.len() + usize::from(with.is_some());
        let (layout, kids_at) = layout(levels.len(), count);
        let header = Header {
            window,
            // SAFETY: an `Arc` points at a value.
            hub: hub.map(|hub| unsafe { NonNull::new_unchecked(Arc::as_ptr(hub).cast_mut()) }),
            levels: levels.len() as u32,
            kids: count as u32,
            witness: Witness::new(),
        };
        // SAFETY: the layout is not empty; header, levels and kids are
        // written within it, each where `View` looks for it.
        unsafe {
            let bytes = alloc(layout);
            let Some(view) = NonNull::new(bytes.cast::<Header>()) else {
                handle_alloc_error(layout)
            };
            view.write(header);
            ptr::copy_nonoverlapping(levels.as_ptr(), bytes.add(LEVELS_AT).cast(), levels.len());
            let first = bytes.add(kids_at).cast::<Kid>();
            ptr::copy_nonoverlapping(before.as_ptr(), first, before.len());
            ptr::copy_nonoverlapping(after.as_ptr(), first.add(before.len()), after.len());
            if let Some(kid) = with {
                first.add(count - 1).write(kid);
            }
            Self(view)
        }
    }
}

impl ViewBox {
    /// The view.
    pub(super) fn get(&self) -> View<'_> {
        View(self.0, PhantomData)
    }
}

impl Drop for ViewBox {
    /// Who drops a view that was published has waited for the readers.
    fn drop(&mut self) {
        let layout = self.get().layout().0;
        // SAFETY: the allocation of `new`, owned by this box alone; levels
        // and kids need no drop.
        unsafe {
            ptr::drop_in_place(self.0.as_ptr());
            dealloc(self.0.as_ptr().cast(), layout);
        }
    }
}

impl<'a> View<'a> {
    #[inline]
    fn header(self) -> &'a Header {
        // SAFETY: `ViewBox::new` put it there, and it lives for `'a`.
        unsafe { self.0.as_ref() }
    }

    /// The allocation, and where the kids are in it.
    fn layout(self) -> (Layout, usize) {
        layout(self.header().levels as usize, self.header().kids as usize)
    }

    /// Blocks of the run.
    #[inline]
    pub(super) fn len(self) -> u32 {
        self.header().window.len()
    }

    /// Whether it shows these columns.
    pub(super) fn shows(self, columns: &Columns) -> bool {
        self.header().window.is_of(columns)
    }

    /// Bytes of the allocation.
    #[inline]
    pub(super) fn bytes(self) -> usize {
        let Header { levels, kids, .. } = self.header();
        LEVELS_AT + *levels as usize * size_of::<Level>() + *kids as usize * size_of::<Kid>()
    }

    /// Who holds how much of the run, the shallowest level first.
    #[inline]
    pub(super) fn levels(self) -> &'a [Level] {
        // SAFETY: `ViewBox::new` put so many there.
        unsafe {
            let first = self.0.byte_add(LEVELS_AT).cast();
            std::slice::from_raw_parts(first.as_ptr(), self.header().levels as usize)
        }
    }

    /// The children, where they are few.
    #[inline]
    pub(super) fn kids(self) -> &'a [Kid] {
        let kids_at = LEVELS_AT + self.header().levels as usize * size_of::<Level>();
        // SAFETY: `ViewBox::new` put so many there.
        unsafe {
            let first = self.0.byte_add(kids_at).cast();
            std::slice::from_raw_parts(first.as_ptr(), self.header().kids as usize)
        }
    }

    /// The table of the children, where they are many.
    #[inline]
    pub(super) fn hub(self) -> Option<&'a Hub> {
        // SAFETY: a hub is retired after the last view that names it, so it
        // lives as long as the pin under which this view was loaded.
        self.header().hub.map(|hub| unsafe { hub.as_ref() })
    }

    /// How many of the run's blocks from `from` on equal `query`'s.
    #[inline]
    pub(super) fn common_prefix(self, from: u32, query: &[LocalHash]) -> u32 {
        // SAFETY: columns are retired after the last view that names them.
        unsafe { self.header().window.common_prefix(from, query) }
    }

    /// The same for a batch of blocks.
    pub(super) fn common_blocks(self, from: u32, blocks: &[Block]) -> u32 {
        let mut locals = [LocalHash::default(); 32];
        let mut equal = 0;
        for part in blocks.chunks(locals.len()) {
            for (local, block) in locals.iter_mut().zip(part) {
                *local = block.local;
            }
            let same = self.common_prefix(from + equal, &locals[..part.len()]);
            equal += same;
            if (same as usize) < part.len() {
                break;
            }
        }
        equal
    }

    /// The child below the run's first `offset` blocks that begins with
    /// `local`.
    #[inline]
    pub(super) fn child<'g>(
        self,
        offset: u32,
        local: LocalHash,
        guard: &'g Guard,
    ) -> Option<&'g Node>
    where
        'a: 'g,
    {
        if let Some(hub) = self.hub() {
            return hub.find(offset, local, guard);
        }
        let kid = self.kids().iter().find(|kid| kid.local == local && kid.offset == offset)?;
        // SAFETY: a child's `Arc` is retired after it left its parent's view,
        // so it lives as long as the pin under which this view was loaded.
        Some(unsafe { kid.node.as_ref() })
    }
}

/// The pointer that readers load.
pub(super) struct Published(AtomicPtr<Header>);

impl Published {
    /// Publishes a first view.
    pub(super) fn new(view: ViewBox) -> Self {
        Self(AtomicPtr::new(ManuallyDrop::new(view).0.as_ptr()))
    }

    /// The view of this moment.
    #[inline]
    pub(super) fn load<'g>(&'g self, _: &'g Guard) -> View<'g> {
        // Acquire: pairs with the release in `publish`; what the writer wrote
        // into the view, the columns and new children is there.
        let acquire =
            if mutant(Mutant::ViewLoadRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        // SAFETY: a published pointer is never null; views are retired through
        // the epoch, and the guard was pinned before this load.
        let view = View(unsafe { NonNull::new_unchecked(self.0.load(acquire)) }, PhantomData);
        view.header().witness.read();
        view
    }

    /// Has the processor fetch the view of this moment. Not in the models,
    /// where a load is a step of the search.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        if !cfg!(kvradix_loom) {
            prefetch(self.0.load(Ordering::Relaxed));
        }
    }

    /// Makes `view` the one that readers load from now on. The one before is
    /// the result, to be retired. Only under the node's exclusive lock.
    #[inline]
    #[must_use]
    pub(super) fn publish(&self, view: ViewBox) -> ViewBox {
        let next = ManuallyDrop::new(view).0.as_ptr();
        // Relaxed: only the holder of the lock changes it.
        let before = self.0.load(Ordering::Relaxed);
        // Release: pairs with the acquire in `load`.
        let release = match () {
            () if mutant(Mutant::ViewPublishRelaxed) => Ordering::Relaxed,
            () if mutant(Mutant::Harmless) => Ordering::SeqCst,
            () => Ordering::Release,
        };
        self.0.store(next, release);
        // SAFETY: a published pointer is never null.
        ViewBox(unsafe { NonNull::new_unchecked(before) })
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // Relaxed would do: whoever drops the node has waited for all.
        let view = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is owned here, and no reader is left.
        drop(ViewBox(unsafe { NonNull::new_unchecked(view) }));
    }
}

/// A node that the caller is about to link, for as long as the pin: from then
/// on the tree or, once detached, the retired list owns it.
pub(super) fn borrow_under_pin<'g>(node: &Arc<Node>, _: &'g Guard) -> &'g Node {
    // SAFETY: the caller links the node or drops the result with the `Arc`.
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

/// Exposes the address of a new node's `Arc`, for places and `owner_of`.
pub(super) fn expose(node: &Arc<Node>) {
    Arc::as_ptr(node).expose_provenance();
}

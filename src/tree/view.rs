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
use std::slice;

use super::columns::{Columns, Window};
use super::hub::Hub;
use super::kids::{Kid, Kids, NextKids, slots_for};
use super::levels::Level;
use super::node::{Half, Node};
use super::place::MAX_RUN;
use crate::sync::{
    Arc, AtomicPtr, Fold, Guard, Mutant, Ordering, Weak, Witness, Word, arc_from_borrowed, mutant,
    prefetch, weak_from_borrowed,
};
use crate::{Block, LocalHash};

/// What stands before a view's levels and kids. Small: with the one level that
/// most runs have, a view is 40 bytes.
#[repr(C)]
struct Header {
    /// The window's words and how many it shows.
    words: NonNull<Word>,
    hub: Option<NonNull<Hub>>,
    levels: u32,
    len: u16,
    kids: u16,
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

/// The allocation of a view with so many levels and kids, and where the kids'
/// slots are in it.
fn layout(levels: usize, kids: usize) -> (Layout, usize) {
    const { assert!(align_of::<Level>() == align_of::<Kid>()) };
    let slots_at = LEVELS_AT + levels * size_of::<Level>();
    let size = slots_at + slots_for(kids) * size_of::<Kid>();
    let align = align_of::<Header>().max(align_of::<Level>());
    let layout = Layout::from_size_align(size, align).expect("a view fits the address space");
    (layout, slots_at)
}

impl ViewBox {
    /// A view with these parts.
    pub(super) fn new<'k>(
        window: Window,
        levels: &[Level],
        kids: impl Into<NextKids<'k>>,
        hub: Option<&Arc<Hub>>,
    ) -> Self {
        const { assert!(MAX_RUN <= u16::MAX as u32) };
        let kids = kids.into();
        let count = kids.count();
        let (layout, slots_at) = layout(levels.len(), count);
        let header = Header {
            words: window.start(),
            // SAFETY: an `Arc` points at a value.
            hub: hub.map(|hub| unsafe { NonNull::new_unchecked(Arc::as_ptr(hub).cast_mut()) }),
            levels: levels.len() as u32,
            len: window.len() as u16,
            kids: u16::try_from(count).expect("kids are few"),
            witness: Witness::new(),
        };
        // SAFETY: the layout is not empty; header, levels and slots are
        // written within it, each where `View` looks for it. All bits zero is
        // an empty slot.
        unsafe {
            let bytes = alloc(layout);
            let Some(view) = NonNull::new(bytes.cast::<Header>()) else {
                handle_alloc_error(layout)
            };
            view.write(header);
            let first = bytes.add(LEVELS_AT).cast::<Level>();
            match levels {
                [level] => first.write(*level),
                all => ptr::copy_nonoverlapping(all.as_ptr(), first, all.len()),
            }
            if count > 0 {
                let first = bytes.add(slots_at).cast::<Kid>();
                first.write_bytes(0, slots_for(count));
                kids.fill(slice::from_raw_parts_mut(first, slots_for(count)));
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

    /// The allocation, and where the kids' slots are in it.
    #[inline]
    fn layout(self) -> (Layout, usize) {
        layout(self.header().levels as usize, self.header().kids as usize)
    }

    /// Blocks of the run.
    #[inline]
    pub(super) fn len(self) -> u32 {
        u32::from(self.header().len)
    }

    /// What it shows of the columns.
    #[inline]
    fn window(self) -> Window {
        Window::new(self.header().words, self.len())
    }

    /// Whether it shows these columns.
    pub(super) fn shows(self, columns: &Columns) -> bool {
        self.window().is_of(columns)
    }

    /// Bytes of the allocation.
    #[inline]
    pub(super) fn bytes(self) -> usize {
        self.layout().0.size()
    }

    /// Who holds how much of the run, the shallowest level first.
    #[inline]
    pub(super) fn levels(self) -> &'a [Level] {
        // SAFETY: `ViewBox::new` put so many there.
        unsafe {
            let first = self.0.byte_add(LEVELS_AT).cast();
            slice::from_raw_parts(first.as_ptr(), self.header().levels as usize)
        }
    }

    /// The children, where they are few.
    #[inline]
    pub(super) fn kids(self) -> Kids<'a> {
        let Header { levels, kids, .. } = self.header();
        let slots_at = LEVELS_AT + *levels as usize * size_of::<Level>();
        let count = usize::from(*kids);
        // SAFETY: `ViewBox::new` put so many there.
        let slots = unsafe {
            let first = self.0.byte_add(slots_at).cast();
            slice::from_raw_parts(first.as_ptr(), slots_for(count))
        };
        Kids::new(slots, count)
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
        unsafe { self.window().common_prefix(from, query) }
    }

    /// Whether the run has such a block at `at`.
    #[inline]
    pub(super) fn has_block(self, at: u32, block: &Block) -> bool {
        at < self.len() && self.common_prefix(at, &[block.local]) > 0
    }

    /// The same as `common_prefix` for a batch of blocks.
    #[inline]
    pub(super) fn common_blocks(self, from: u32, blocks: &[Block]) -> u32 {
        if from >= self.len() { 0 } else { self.compare_blocks(from, blocks) }
    }

    fn compare_blocks(self, from: u32, blocks: &[Block]) -> u32 {
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
        fold: Fold,
        guard: &'g Guard,
    ) -> Option<&'g Node>
    where
        'a: 'g,
    {
        if let Some(hub) = self.hub() {
            return hub.find(offset, local, guard);
        }
        let candidates = self.kids().candidates(offset, local, fold);
        // SAFETY: a child's `Arc` is retired after it left its parent's view,
        // so it lives as long as the pin under which this view was loaded.
        let mut nodes = candidates.map(|node| unsafe { &*node });
        nodes.find(|node| node.first() == local && node.offset() == offset)
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

//! What readers see of a node: one immutable view behind an atomic pointer.
//!
//! A view is a header, the owner levels and a few children in one allocation.
//! A writer that holds the node's lock builds the next one and publishes it
//! with one store; a reader loads it under its pin. The view that was
//! replaced is retired, never dropped at once.
//!
//! Most nodes are a suffix that one worker holds whole, with nothing below it.
//! Such a view is no allocation: the holder's slot and the run's length stand
//! in the word where else the pointer is, and the columns beside it.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::ManuallyDrop;
use std::num::NonZero;
use std::ptr::{self, NonNull};
use std::slice;

use super::columns::{Columns, Window};
use super::hub::Hub;
use super::kids::{Kids, NextKids, slots_for};
use super::levels::Level;
use super::node::{Half, Node};
use super::place::MAX_RUN;
use super::slot::Slot;
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
    slots: u16,
    witness: Witness,
    // Behind the header: `levels` levels, then `slots` children's slots.
}

/// An immutable picture of a node that somebody keeps alive for `'a`.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    /// `None` where it is no allocation.
    header: Option<&'a Header>,
    window: Window,
    /// The one level where there is no header.
    sole: Level,
}

/// A view not yet published, or no longer: an allocation, or a sole holder's
/// word.
pub(super) struct ViewBox(NonNull<Header>);

/// The bit that tells a sole holder's word from an address.
const SOLE: usize = 1;
/// Where in such a word the holder's slot begins; the run's length is below.
const SLOT_AT: u32 = 32;
const _: () = assert!(usize::BITS == 64 && (MAX_RUN as usize) << 1 < 1 << SLOT_AT);

// SAFETY: a view is immutable; what it points at is reached under a pin only.
unsafe impl Send for ViewBox {}
// SAFETY: as above.
unsafe impl Sync for ViewBox {}

const LEVELS_AT: usize = size_of::<Header>().next_multiple_of(align_of::<Level>());

/// The allocation of a view with so many levels and slots, and where the slots
/// are in it.
fn layout(levels: usize, slots: usize) -> (Layout, usize) {
    const { assert!(align_of::<Level>().is_multiple_of(align_of::<Slot>())) };
    let slots_at = LEVELS_AT + levels * size_of::<Level>();
    let size = slots_at + slots * size_of::<Slot>();
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
        let slots = slots_for(kids.count());
        if let [level] = levels
            && (slots, level.cutoff, level.bits.is_power_of_two()) == (0, window.len(), true)
            && hub.is_none()
        {
            return Self::sole(level.chunk * 64 + level.bits.trailing_zeros(), window.len());
        }
        let (layout, slots_at) = layout(levels.len(), slots);
        let header = Header {
            words: window.start(),
            // SAFETY: an `Arc` points at a value.
            hub: hub.map(|hub| unsafe { NonNull::new_unchecked(Arc::as_ptr(hub).cast_mut()) }),
            levels: levels.len() as u32,
            len: window.len() as u16,
            slots: u16::try_from(slots).expect("kids are few"),
            witness: Witness::new(),
        };
        // SAFETY: the layout is not empty; header, levels and slots are
        // written within it, each where `View` looks for it.
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
            if slots > 0 {
                let first = bytes.add(slots_at).cast::<Slot>();
                (0..slots).for_each(|at| first.add(at).write(Slot::empty()));
                kids.fill(slice::from_raw_parts(first, slots));
            }
            Self(view)
        }
    }
}

impl ViewBox {
    /// A view of a run of `len` blocks that `slot` alone holds, all of them.
    fn sole(slot: u32, len: u32) -> Self {
        let word = (slot as usize) << SLOT_AT | (len as usize) << 1 | SOLE;
        Self(NonNull::without_provenance(NonZero::new(word).expect("a bit is set")))
    }

    fn is_sole(&self) -> bool {
        self.0.addr().get() & SOLE != 0
    }

    /// The allocation, if it is one.
    fn header(&self) -> Option<&Header> {
        if self.is_sole() {
            return None;
        }
        // SAFETY: `new` put it there, and this box owns it.
        Some(unsafe { self.0.as_ref() })
    }

    /// Bytes of the allocation.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.header().map_or(0, |header| header.layout().0.size())
    }
}

impl Drop for ViewBox {
    /// Who drops a view that was published has waited for the readers.
    #[inline]
    fn drop(&mut self) {
        let Some(header) = self.header() else { return };
        let ((layout, slots_at), slots) = (header.layout(), usize::from(header.slots));
        // SAFETY: the allocation of `new`, owned by this box alone; levels
        // need no drop.
        unsafe {
            let first = self.0.byte_add(slots_at).cast::<Slot>().as_ptr();
            ptr::drop_in_place(ptr::slice_from_raw_parts_mut(first, slots));
            ptr::drop_in_place(self.0.as_ptr());
            dealloc(self.0.as_ptr().cast(), layout);
        }
    }
}

impl Header {
    /// The allocation, and where the slots are in it.
    #[inline]
    fn layout(&self) -> (Layout, usize) {
        layout(self.levels as usize, usize::from(self.slots))
    }
}

impl<'a> View<'a> {
    /// The view of this allocation.
    #[inline]
    fn of(header: &'a Header) -> Self {
        let window = Window::new(header.words, u32::from(header.len));
        Self { header: Some(header), window, sole: Level { cutoff: 0, chunk: 0, bits: 0 } }
    }

    /// The view of a sole holder's word.
    #[inline]
    fn of_sole(word: usize, words: NonNull<Word>) -> Self {
        let (slot, len) = ((word >> SLOT_AT) as u32, (word as u32) >> 1);
        let sole = Level { cutoff: len, chunk: slot / 64, bits: 1 << (slot % 64) };
        Self { header: None, window: Window::new(words, len), sole }
    }

    /// Blocks of the run.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.window.len()
    }

    /// Whether it shows these columns.
    pub(super) fn shows(&self, columns: &Columns) -> bool {
        self.window.is_of(columns)
    }

    /// Bytes of the allocation.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.header.map_or(0, |header| header.layout().0.size())
    }

    /// Who holds how much of the run, the shallowest level first.
    #[inline]
    pub(super) fn levels(&self) -> &[Level] {
        let Some(header) = self.header else { return slice::from_ref(&self.sole) };
        // SAFETY: `ViewBox::new` put so many there.
        unsafe {
            let first = NonNull::from(header).byte_add(LEVELS_AT).cast();
            slice::from_raw_parts(first.as_ptr(), header.levels as usize)
        }
    }

    /// The children, where they are few.
    #[inline]
    pub(super) fn kids(&self) -> Kids<'a> {
        let Some(header) = self.header else { return Kids::default() };
        // SAFETY: `ViewBox::new` put so many there.
        Kids::new(unsafe {
            let first = NonNull::from(header).byte_add(header.layout().1).cast();
            slice::from_raw_parts(first.as_ptr(), usize::from(header.slots))
        })
    }

    /// Notes where readers of `child` go on from it.
    pub(super) fn point_ahead(&self, child: &Node, fold: Fold) {
        match self.hub() {
            Some(hub) => hub.point_ahead(child),
            None => self.kids().point_ahead(child, fold),
        }
    }

    /// The table of the children, where they are many.
    #[inline]
    pub(super) fn hub(&self) -> Option<&'a Hub> {
        // SAFETY: a hub is retired after the last view that names it, so it
        // lives as long as the pin under which this view was loaded.
        self.header?.hub.map(|hub| unsafe { hub.as_ref() })
    }

    /// How many of the run's blocks from `from` on equal `query`'s.
    #[inline]
    pub(super) fn common_prefix(&self, from: u32, query: &[LocalHash]) -> u32 {
        // SAFETY: columns are retired after the last view that names them.
        unsafe { self.window.common_prefix(from, query) }
    }

    /// Whether the run has such a block at `at`.
    #[inline]
    pub(super) fn has_block(&self, at: u32, block: &Block) -> bool {
        at < self.len() && self.common_prefix(at, &[block.local]) > 0
    }

    /// The same as `common_prefix` for a batch of blocks.
    #[inline]
    pub(super) fn common_blocks(&self, from: u32, blocks: &[Block]) -> u32 {
        if from >= self.len() { 0 } else { self.compare_blocks(from, blocks) }
    }

    fn compare_blocks(&self, from: u32, blocks: &[Block]) -> u32 {
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
        &self,
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
        self.kids().find(offset, local, fold, guard)
    }
}

/// A line that a reader asks for once it has a node: of a view, or of columns.
pub(super) struct Ahead;

/// What readers load of a node.
pub(super) struct Published {
    /// A view's address, or a sole holder's word.
    state: AtomicPtr<Header>,
    /// Where the columns are, for a sole holder's word; else where they are or
    /// were, for a prefetch.
    columns: AtomicPtr<Word>,
}

impl Published {
    /// Publishes a first view, of these columns.
    pub(super) fn new(view: ViewBox, columns: &Columns) -> Self {
        Self {
            state: AtomicPtr::new(ManuallyDrop::new(view).0.as_ptr()),
            columns: AtomicPtr::new(columns.start().as_ptr()),
        }
    }

    /// The view of this moment.
    #[inline]
    pub(super) fn load<'g>(&'g self, _: &'g Guard) -> View<'g> {
        // Acquire: pairs with the release in `publish`; what the writer wrote
        // into the view, the columns and new children is there.
        let acquire =
            if mutant(Mutant::ViewLoadRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        let mut state = self.state.load(acquire);
        loop {
            let word = state.addr();
            if word & SOLE == 0 {
                // SAFETY: an address that was published; views are retired
                // through the epoch, and the guard was pinned before this load.
                let header = unsafe { &*state };
                header.witness.read();
                return View::of(header);
            }
            // Acquire: pairs with the release in `move_columns`. Who sees
            // columns sees the state before them, and looks for a later one.
            let columns = self.columns.load(match mutant(Mutant::ColumnsLoadRelaxed) {
                true => Ordering::Relaxed,
                false => Ordering::Acquire,
            });
            let before = state;
            state = self.state.load(acquire);
            if state == before || mutant(Mutant::ColumnsUnchecked) {
                // SAFETY: columns' address is never null.
                return View::of_sole(word, unsafe { NonNull::new_unchecked(columns) });
            }
        }
    }

    /// Has the processor fetch the view of this moment, and the columns while
    /// it still waits for the view that leads to them: one miss less in a row.
    /// Not in the models, where a load is a step of the search.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        if !cfg!(kvradix_loom) {
            let state = self.state.load(Ordering::Relaxed);
            if state.addr() & SOLE == 0 {
                prefetch(state);
            }
            prefetch(self.columns.load(Ordering::Relaxed));
        }
    }

    /// What a reader of this moment's view asks for next: the view itself, or
    /// a sole holder's columns. To be prefetched only.
    #[inline]
    pub(super) fn ahead(&self) -> *const Ahead {
        if cfg!(kvradix_loom) {
            return std::ptr::null();
        }
        // Relaxed: an address that is not looked behind.
        let state = self.state.load(Ordering::Relaxed);
        if state.addr() & SOLE == 0 {
            state.cast()
        } else {
            self.columns.load(Ordering::Relaxed).cast()
        }
    }

    /// Makes `view` the one that readers load from now on. The one before is
    /// the result, to be retired, if it is an allocation. Only under the node's
    /// exclusive lock.
    #[inline]
    #[must_use]
    pub(super) fn publish(&self, view: ViewBox) -> Option<ViewBox> {
        let next = ManuallyDrop::new(view).0.as_ptr();
        // Relaxed: only the holder of the lock changes it.
        let before = self.state.load(Ordering::Relaxed);
        // Release: pairs with the acquire in `load`.
        let release = match () {
            () if mutant(Mutant::ViewPublishRelaxed) => Ordering::Relaxed,
            () if mutant(Mutant::Harmless) => Ordering::SeqCst,
            () => Ordering::Release,
        };
        self.state.store(next, release);
        // SAFETY: a state is never null.
        let before = ViewBox(unsafe { NonNull::new_unchecked(before) });
        (!before.is_sole()).then_some(before)
    }

    /// Shows where the columns are now: longer ones before the view that needs
    /// them is published, shorter ones after the view that does without. Only
    /// under the node's exclusive lock.
    #[inline]
    pub(super) fn move_columns(&self, columns: &Columns) {
        // Release: pairs with the acquire in `load`.
        let release =
            if mutant(Mutant::ColumnsMoveRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        self.columns.store(columns.start().as_ptr(), release);
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // Relaxed would do: whoever drops the node has waited for all.
        let state = self.state.load(Ordering::Acquire);
        // SAFETY: the state is owned here, never null, and no reader is left.
        drop(ViewBox(unsafe { NonNull::new_unchecked(state) }));
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

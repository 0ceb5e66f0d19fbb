//! What readers see of a node: window and owner levels, which never change, and
//! slots that children come into and go from.
//!
//! A view is a header, the levels and the slots in one allocation. Most nodes
//! are a suffix that one worker holds whole, with nothing below it: such a view
//! is no allocation but a word, of the holder's slot and the run's length.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::ManuallyDrop;
use std::num::NonZero;
use std::ptr::{self, NonNull};
use std::slice;

use super::columns::{Columns, Window};
use super::hub::Hub;
use super::kids::{Kids, NextKids};
use super::levels::Level;
use super::node::Node;
use super::place::MAX_RUN;
use super::slot::Slot;
use crate::sync::{Arc, Fold, Guard, Witness, Word};
use crate::{Block, LocalHash};

/// What stands before a view's levels and kids. Small: with the one level that
/// most runs have, a view is 40 bytes.
#[repr(C)]
pub(super) struct Header {
    /// The window's words and how many it shows.
    words: NonNull<Word>,
    hub: Option<NonNull<Hub>>,
    levels: u32,
    len: u16,
    slots: u16,
    witness: Witness,
    // Behind the header: `levels` levels, then `slots` children's slots.
}

/// A picture of a node that somebody keeps alive for `'a`.
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

/// Whether a state is a sole holder's word.
#[inline]
pub(super) fn is_sole(state: *mut Header) -> bool {
    state.addr() & SOLE != 0
}

/// The run's length in such a word.
#[inline]
pub(super) fn sole_len(word: usize) -> u32 {
    (word as u32) >> 1
}

/// Where in such a word the holder's slot begins; the run's length is below.
const SLOT_AT: u32 = 32;
const _: () = assert!(usize::BITS == 64 && (MAX_RUN as usize) << 1 < 1 << SLOT_AT);

// SAFETY: header and levels never change once published, slots are atomics;
// what they point at is reached under a pin or the node's lock.
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
        let slots = kids.slots();
        if let [level] = levels
            && let Some(slot) = level.sole_slot()
            && (slots, level.cutoff) == (0, window.len())
            && hub.is_none()
        {
            return Self::sole(slot, window.len());
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
        // written within it, each where `View` looks for it. Slots that are
        // copied are those of the node's view, whose lock the caller holds
        // exclusively.
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
                let copied = kids.copied();
                match copied {
                    Some(from) => Slot::copy(from, first),
                    None => (0..slots).for_each(|at| first.add(at).write(Slot::empty())),
                }
                kids.add(slice::from_raw_parts(first, slots), copied.is_some());
            }
            Self(view)
        }
    }

    /// A view of a run of `len` blocks that `slot` alone holds, all of them.
    fn sole(slot: u32, len: u32) -> Self {
        let word = (slot as usize) << SLOT_AT | (len as usize) << 1 | SOLE;
        Self(NonNull::without_provenance(NonZero::new(word).expect("a bit is set")))
    }

    /// Gives the view to whoever keeps its state.
    #[inline]
    pub(super) fn into_state(self) -> *mut Header {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// # Safety
    /// `state` came from `into_state` and is owned by nobody else.
    #[inline]
    pub(super) unsafe fn from_state(state: *mut Header) -> Self {
        // SAFETY: a state is never null.
        Self(unsafe { NonNull::new_unchecked(state) })
    }

    /// Whether it is no allocation.
    #[inline]
    pub(super) fn is_sole(&self) -> bool {
        is_sole(self.0.as_ptr())
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
        self.header().map_or(0, Header::bytes)
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

    /// Bytes of the allocation.
    fn bytes(&self) -> usize {
        self.layout().0.size()
    }
}

impl<'a> View<'a> {
    /// The view of this allocation.
    #[inline]
    pub(super) fn of(header: &'a Header) -> Self {
        header.witness.read();
        let window = Window::new(header.words, u32::from(header.len));
        Self { header: Some(header), window, sole: Level { cutoff: 0, chunk: 0, bits: 0 } }
    }

    /// The view of a sole holder's word.
    ///
    /// # Safety
    /// `words` are columns that were shown beside `word`, and live for `'a`.
    #[inline]
    pub(super) unsafe fn of_sole(word: usize, words: NonNull<Word>) -> Self {
        let (slot, len) = ((word >> SLOT_AT) as u32, sole_len(word));
        Self { header: None, window: Window::new(words, len), sole: Level::sole(slot, len) }
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
        self.header.map_or(0, Header::bytes)
    }

    /// Where the allocation is, if it is one, and its bytes.
    pub(super) fn allocation(&self) -> Option<(*const Header, usize)> {
        self.header.map(|header| (std::ptr::from_ref(header), header.bytes()))
    }

    /// Who holds how much of the run, the shallowest level first.
    #[inline]
    pub(super) fn levels(&self) -> &[Level] {
        let Some(header) = self.header else { return slice::from_ref(&self.sole) };
        // SAFETY: `ViewBox::new` put so many there, and the allocation lives
        // for `'a`.
        unsafe {
            let first = NonNull::from(header).byte_add(LEVELS_AT).cast();
            slice::from_raw_parts(first.as_ptr(), header.levels as usize)
        }
    }

    /// The children, where they are few.
    #[inline]
    pub(super) fn kids(&self) -> Kids<'a> {
        let Some(header) = self.header else { return Kids::default() };
        // SAFETY: `ViewBox::new` put so many there, and the allocation lives
        // for `'a`.
        Kids::new(unsafe {
            let first = NonNull::from(header).byte_add(header.layout().1).cast();
            slice::from_raw_parts(first.as_ptr(), usize::from(header.slots))
        })
    }

    /// Renews the hint of where readers of `child` go on.
    pub(super) fn renew_hint(&self, child: &Node, fold: Fold, guard: &Guard) {
        match self.hub() {
            Some(hub) => hub.renew_hint(child, guard),
            None => self.kids().renew_hint(child, fold, guard),
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
        // SAFETY: the window's columns have its length: `ViewBox::new` took both
        // from one `Window`, or `Published::load` found the columns shown beside
        // the word. They are retired after the last view that names them was
        // replaced, or others were shown, so the pin of this view keeps them.
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

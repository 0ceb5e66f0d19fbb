//! A run's blocks: two columns in one allocation, append-only.
//!
//! The local hashes come first; readers see a prefix of them, the window of
//! the view they loaded. The names follow; only writers touch them, under the
//! node's lock.
//!
//! Invariant: a slot is written once, before the first window that covers it
//! is published. `high` counts the slots ever written; after a trim the slots
//! between the run's length and `high` are still covered by older views, so
//! nothing is appended in place until the columns are copied.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::sync::{Mutant, Word, mutant};
use crate::{Block, LocalHash, SequenceHash};

/// Slots of columns that are kept however short the run becomes.
pub(super) const KEPT_SLOTS: u32 = if cfg!(kvradix_loom) { 8 } else { 64 };

/// The columns of one run.
pub(super) struct Columns {
    /// `2 * cap` words: the local hashes, then the names.
    words: NonNull<Word>,
    /// Slots of each column.
    cap: u32,
    /// Slots written so far.
    high: u32,
}

/// A prefix of the local column, as a view publishes it.
#[derive(Clone, Copy)]
pub(super) struct Window {
    words: NonNull<Word>,
    len: u32,
}

// SAFETY: the words are reached through `Columns` under its node's lock, or
// through a window, whose slots are never written again.
unsafe impl Send for Columns {}
// SAFETY: as above.
unsafe impl Sync for Columns {}

impl Columns {
    /// Columns without a slot; allocates nothing.
    pub(super) fn empty() -> Self {
        Self { words: NonNull::dangling(), cap: 0, high: 0 }
    }

    /// Empty columns with room for `cap` blocks.
    pub(super) fn with_capacity(cap: u32) -> Self {
        if cap == 0 {
            return Self::empty();
        }
        let words = Word::allocate(2 * cap as usize);
        Self { words, cap, high: 0 }
    }

    /// Where the allocation begins.
    #[inline]
    pub(super) fn start(&self) -> NonNull<Word> {
        self.words
    }

    /// Slots of each column.
    pub(super) fn capacity(&self) -> u32 {
        self.cap
    }

    /// Bytes of the allocation.
    pub(super) fn bytes(&self) -> usize {
        2 * self.cap as usize * size_of::<Word>()
    }

    /// How many blocks can be appended in place to a run of `len` blocks.
    pub(super) fn room(&mut self, len: u32) -> u32 {
        if mutant(Mutant::NoHighWaterMark) {
            self.high = len;
        }
        if len == self.high { self.cap - self.high } else { 0 }
    }

    /// Blocks ever written, those of the run first.
    pub(super) fn written(&self) -> u32 {
        self.high
    }

    /// Whether slots behind a run of `len` blocks are covered by older views.
    pub(super) fn trimmed(&self, len: u32) -> bool {
        len < self.high
    }

    /// Appends a block.
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub(super) fn push(&mut self, block: Block) {
        assert!(self.high < self.cap);
        let at = self.high as usize;
        // SAFETY: both slots are within the allocation; no window covers
        // slot `high`, and `&mut self` keeps other writers out.
        unsafe {
            self.words.add(at).as_ref().set(block.local.0);
            self.words.add(self.cap as usize + at).as_ref().set(block.sequence.0);
        }
        self.high += 1;
    }

    /// A copy of the first `len` blocks with room for `cap`.
    pub(super) fn copy(&self, len: u32, cap: u32) -> Self {
        assert!(len <= self.high && len <= cap);
        let mut copy = Self::with_capacity(cap);
        let (from, to) = (self.cap as usize, cap as usize);
        // SAFETY: both ranges of both columns lie in their allocations; what
        // is read was written and is not written meanwhile, what is written
        // nobody else sees yet.
        unsafe {
            Word::copy(self.words, copy.words, len as usize);
            Word::copy(self.words.add(from), copy.words.add(to), len as usize);
        }
        copy.high = len;
        copy
    }

    /// A shorter copy of the first `len` blocks, if these columns have become
    /// far too large for them.
    #[inline]
    pub(super) fn cut(&self, len: u32) -> Option<Self> {
        let idle = self.cap > KEPT_SLOTS && len < self.cap / 4 && len > 0;
        idle.then(|| self.copy(len, len + len / 4))
    }

    /// The name at `at`.
    #[inline]
    pub(super) fn name(&self, at: u32) -> SequenceHash {
        assert!(at < self.high);
        // SAFETY: the slot is within the allocation and was written; names
        // are written through `&mut self` alone.
        SequenceHash(unsafe { self.words.add((self.cap + at) as usize).as_ref().get() })
    }

    /// Gives the block at `at` another name.
    pub(super) fn rename(&mut self, at: u32, name: SequenceHash) {
        assert!(at < self.high);
        // SAFETY: within the allocation; readers do not look at names, and
        // `&mut self` keeps other writers out.
        unsafe { self.words.add((self.cap + at) as usize).as_ref().set(name.0) }
    }

    /// The content at `at`.
    #[inline]
    pub(super) fn local(&self, at: u32) -> LocalHash {
        assert!(at < self.high);
        // SAFETY: within the allocation, written, and never written again.
        LocalHash(unsafe { self.words.add(at as usize).as_ref().get() })
    }

    /// The first `len` local hashes, for a view.
    pub(super) fn window(&self, len: u32) -> Window {
        assert!(len <= self.high);
        Window { words: self.words, len }
    }
}

impl Drop for Columns {
    /// Who drops columns that were published has waited for the readers:
    /// replaced ones are retired, a node's last ones go with the node.
    fn drop(&mut self) {
        if self.cap > 0 {
            // SAFETY: this is the allocation of `with_capacity`, and no window
            // of it is in use any more.
            unsafe { Word::free(self.words, 2 * self.cap as usize) };
        }
    }
}

impl Window {
    /// The first `len` of `words`.
    #[inline]
    pub(super) fn new(words: NonNull<Word>, len: u32) -> Self {
        Self { words, len }
    }

    /// Where its words are.
    #[inline]
    pub(super) fn start(self) -> NonNull<Word> {
        self.words
    }

    /// Whether it shows these columns.
    pub(super) fn is_of(self, columns: &Columns) -> bool {
        self.len <= columns.high && (self.len == 0 || self.words == columns.words)
    }

    /// How many blocks it shows.
    #[inline]
    pub(super) fn len(self) -> u32 {
        self.len
    }

    /// How many blocks from `from` on equal `query`'s, one by one.
    ///
    /// # Safety
    /// The columns are not freed meanwhile.
    #[inline]
    pub(super) unsafe fn common_prefix(self, from: u32, query: &[LocalHash]) -> u32 {
        if from >= self.len {
            return 0;
        }
        // SAFETY: the slots from `from` to `len` lie in the allocation, which
        // lives, says the caller; a window's slots are never written again.
        unsafe {
            let start = self.words.add(from as usize);
            let words = NonNull::slice_from_raw_parts(start, (self.len - from) as usize);
            Word::common_prefix(words.as_ref(), LocalHash::to_slice(query)) as u32
        }
    }
}

//! The pointer by which a view is published.
//!
//! A writer that holds the node's lock builds the next view and publishes it
//! with one store; a reader loads it under its pin. The view that was replaced
//! is retired, never dropped at once. A sole holder's view is the word that is
//! stored, and needs to know where the columns are: they are shown beside it.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::columns::Columns;
use super::view::{Header, View, ViewBox, is_sole, sole_len};
use crate::sync::{AtomicPtr, Guard, Mutant, Ordering, Word, mutant, prefetch};

/// A line that a reader asks for once it has a node: of a view, or of columns.
pub(super) struct Line;

/// Bits of a hint below the address, which say how many lines readers go on to:
/// none stands for two.
const LINES_BITS: usize = 7;
const _: () = assert!(align_of::<Header>() > LINES_BITS && align_of::<u64>() > LINES_BITS);
/// Most lines of a view and of columns that are fetched.
const VIEW_LINES: usize = 8;
const COLUMN_LINES: usize = 2 * (LINES_BITS + 1);
/// Bytes of a view that nobody has looked at.
const VIEW_BYTES: usize = 4 * 64;

/// A hint of so many bytes from `first` on.
#[inline]
fn hint_of(first: *const Line, bytes: usize, most: usize) -> *const Line {
    let lines = (first.addr() % 64 + bytes).div_ceil(64).clamp(2, most);
    first.map_addr(|address| address | (lines.div_ceil(2) - 1))
}

/// Whether two hints are of one place, if not of as many lines.
pub(super) fn are_beside(one: *const Line, other: *const Line) -> bool {
    one.addr() | LINES_BITS == other.addr() | LINES_BITS
}

/// Has the processor fetch the lines that a hint tells.
#[inline(always)]
pub(super) fn prefetch_hinted(hint: *const Line) {
    let first = hint.map_addr(|address| address & !LINES_BITS).cast::<u8>();
    for pair in 0..=hint.addr() & LINES_BITS {
        prefetch(first.wrapping_add(128 * pair));
        prefetch(first.wrapping_add(128 * pair + 64));
    }
}

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
            state: AtomicPtr::new(view.into_state()),
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
        // Acquire: pairs with the release in `move_columns`; the state that is
        // read then is not older than these columns.
        let shown = || {
            self.columns.load(match mutant(Mutant::ColumnsLoadRelaxed) {
                true => Ordering::Relaxed,
                false => Ordering::Acquire,
            })
        };
        let mut columns = shown();
        loop {
            let state = self.state.load(acquire);
            if !is_sole(state) {
                // SAFETY: an address that was published; views are retired
                // through the epoch, and the guard was pinned before this load.
                return View::of(unsafe { &*state });
            }
            // The same columns before and after: the state is of the time in
            // which they were shown. Their address is not another's, as under
            // this pin columns that were loaded are not freed. The state twice
            // would not do: a run that was cut and is as long again has the
            // same one.
            let before = std::mem::replace(&mut columns, shown());
            if columns == before || mutant(Mutant::ColumnsUnchecked) {
                // SAFETY: columns' address is never null, and longer columns
                // are shown before the state that needs them, shorter ones
                // after the state that does without: these have the run's
                // blocks at each state of their time.
                return unsafe { View::of_sole(state.addr(), NonNull::new_unchecked(before)) };
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
            if !is_sole(state) {
                prefetch(state);
            }
            prefetch(self.columns.load(Ordering::Relaxed));
        }
    }

    /// What a reader of this moment's view asks for next: the view itself, or
    /// a sole holder's columns. To be prefetched only, by `prefetch_hinted`.
    #[inline]
    pub(super) fn hint(&self) -> *const Line {
        if cfg!(kvradix_loom) {
            return std::ptr::null();
        }
        // Relaxed: an address that is not looked behind.
        let state = self.state.load(Ordering::Relaxed);
        if !is_sole(state) {
            return hint_of(state.cast(), VIEW_BYTES, VIEW_LINES);
        }
        let columns = self.columns.load(Ordering::Relaxed).cast();
        hint_of(columns, sole_len(state.addr()) as usize * size_of::<u64>(), COLUMN_LINES)
    }

    /// The same once who asks has a pin, and can look how large the view is.
    pub(super) fn hint_under(&self, guard: &Guard) -> *const Line {
        if cfg!(kvradix_loom) {
            return std::ptr::null();
        }
        match self.load(guard).allocation() {
            Some((first, bytes)) => hint_of(first.cast(), bytes, VIEW_LINES),
            None => self.hint(),
        }
    }

    /// Makes `view` the one that readers load from now on. The one before is
    /// the result, to be retired, if it is an allocation. Only under the node's
    /// exclusive lock.
    #[inline]
    #[must_use]
    pub(super) fn publish(&self, view: ViewBox) -> Option<ViewBox> {
        // Relaxed: only the holder of the lock changes it.
        let before = self.state.load(Ordering::Relaxed);
        // Release: pairs with the acquire in `load`.
        let release = match () {
            () if mutant(Mutant::ViewPublishRelaxed) => Ordering::Relaxed,
            () if mutant(Mutant::Harmless) => Ordering::SeqCst,
            () => Ordering::Release,
        };
        self.state.store(view.into_state(), release);
        // SAFETY: it was published, and nothing but readers has it any more.
        let before = unsafe { ViewBox::from_state(before) };
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
        // SAFETY: the state is owned here, and no reader is left.
        drop(unsafe { ViewBox::from_state(state) });
    }
}

#[cfg(all(test, not(kvradix_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_hint_tells_the_lines_that_there_are_and_hides_no_address() {
        let at = |address: usize| std::ptr::without_provenance::<Line>(address);
        for (address, bytes, most, lines) in [
            (0x1000, 1, VIEW_LINES, 2),
            (0x1038, 64, VIEW_LINES, 2),
            (0x1038, 73, VIEW_LINES, 4),
            (0x1008, 8 * 64 - 8, VIEW_LINES, 8),
            (0x1008, 1 << 20, VIEW_LINES, VIEW_LINES),
            (0x1008, 1 << 20, COLUMN_LINES, COLUMN_LINES),
        ] {
            let hint = hint_of(at(address), bytes, most);
            assert_eq!(2 * ((hint.addr() & LINES_BITS) + 1), lines, "{bytes} bytes");
            assert_eq!(hint.addr() & !LINES_BITS, address);
            assert!(are_beside(hint, hint_of(at(address), 1, most)));
            assert!(!are_beside(hint, hint_of(at(address + 8), bytes, most)));
        }
    }
}

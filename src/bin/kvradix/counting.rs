//! The allocator, counting what it has handed out.
//!
//! Counts are kept apart for the index and for the simulation around it: a
//! thread says whose memory it asks for and gives back. Nothing is counted,
//! and nothing is slower for it, before `begin`.

// A counting allocator cannot be had without.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// Whose memory is asked for, or given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// The index's, its threads' and its collector's; unless told otherwise.
    Index,
    Simulation,
}

/// The system's allocator.
pub struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
/// Bytes handed out and not given back since `begin`.
static LIVE: [AtomicI64; 2] = [const { AtomicI64::new(0) }; 2];

thread_local! {
    static WHOSE: Cell<Whose> = const { Cell::new(Whose::Index) };
}

/// Begins to count; what is given back later but was handed out before makes
/// the counts that much smaller.
pub fn begin() {
    COUNTS.store(true, Ordering::Relaxed);
}

/// Bytes of `whose` memory since `begin`.
pub fn live(whose: Whose) -> i64 {
    LIVE[whose as usize].load(Ordering::Relaxed)
}

/// What `run` asks for and gives back on this thread is `whose`.
pub fn of<T>(whose: Whose, run: impl FnOnce() -> T) -> T {
    let before = WHOSE.replace(whose);
    let result = run();
    WHOSE.set(before);
    result
}

#[inline]
fn count(bytes: i64) {
    if COUNTS.load(Ordering::Relaxed) {
        // The thread may be past its locals, at its very end.
        let whose = WHOSE.try_with(Cell::get).unwrap_or(Whose::Index);
        LIVE[whose as usize].fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: as above; `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

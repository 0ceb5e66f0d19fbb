//! The allocator, counting what it has handed out.

// A counting allocator cannot be had without.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// To be the test's `#[global_allocator]`.
pub struct Counting;

/// Bytes handed out and not given back.
static LIVE: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    /// How often this thread has asked for memory.
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    LIVE.fetch_add(bytes, Ordering::Relaxed);
    if bytes > 0 {
        // The thread may be past its locals, at its very end.
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
    }
}

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above; `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes handed out and not given back, by all threads.
pub fn live_bytes() -> isize {
    LIVE.load(Ordering::Relaxed)
}

/// How often this thread has asked for memory.
pub fn taken() -> usize {
    TAKEN.get()
}

/// The count is of the process: one test at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|panicked| panicked.into_inner())
}

//! An allocator that keeps what a model frees until its run ends, so that the
//! stand-ins can say that something was touched after it was freed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};

/// Set as the test's allocator.
pub struct Keep;

thread_local! {
    static KEEPING: Cell<bool> = const { Cell::new(false) };
    static KEPT: Kept = const { Kept(UnsafeCell::new(Blocks { at: std::ptr::null_mut(), len: 0, room: 0 })) };
}

struct Kept(UnsafeCell<Blocks>);

/// A list whose own memory comes from the system.
struct Blocks {
    at: *mut (*mut u8, Layout),
    len: usize,
    room: usize,
}

/// Gives back what was kept, and keeps from now on.
pub fn begin() {
    KEEPING.set(false);
    KEPT.with(|kept| {
        // SAFETY: this thread's list, used nowhere else meanwhile.
        let blocks = unsafe { &mut *kept.0.get() };
        for i in 0..blocks.len {
            // SAFETY: the entry was written by `keep`, and its block is freed
            // here for the first time.
            unsafe {
                let (block, layout) = *blocks.at.add(i);
                System.dealloc(block, layout);
            }
        }
        blocks.len = 0;
    });
    KEEPING.set(true);
}

fn keep(block: *mut u8, layout: Layout) {
    KEPT.with(|kept| {
        // SAFETY: this thread's list; nothing here allocates through `Keep`.
        let blocks = unsafe { &mut *kept.0.get() };
        if blocks.len == blocks.room {
            let room = (blocks.room * 2).max(1 << 14);
            let old = Layout::array::<(*mut u8, Layout)>(blocks.room).expect("fits");
            let new = Layout::array::<(*mut u8, Layout)>(room).expect("fits");
            // SAFETY: the list's own memory, from the system, of this layout.
            blocks.at = unsafe {
                if blocks.at.is_null() {
                    System.alloc(new).cast()
                } else {
                    System.realloc(blocks.at.cast(), old, new.size()).cast()
                }
            };
            assert!(!blocks.at.is_null());
            blocks.room = room;
        }
        // SAFETY: there is room.
        unsafe { blocks.at.add(blocks.len).write((block, layout)) };
        blocks.len += 1;
    });
}

// SAFETY: the system's allocator, but that some blocks are given back later.
unsafe impl GlobalAlloc for Keep {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if KEEPING.try_with(Cell::get).unwrap_or(false) {
            keep(block, layout);
        } else {
            // SAFETY: the caller's word.
            unsafe { System.dealloc(block, layout) }
        }
    }
}

//! Plain memory: what loom cannot see by itself.

use std::cell::Cell;
use std::ptr::NonNull;

use super::checker::alloc::Track;
use super::checker::cell::UnsafeCell;

/// Tells the living from the freed.
#[derive(Debug)]
struct Life(Cell<u64>);

const ALIVE: u64 = 0x_a11e_a11e_a11e_a11e;
const FREED: u64 = 0x_dead_dead_dead_dead;

impl Life {
    const fn new() -> Self {
        Self(Cell::new(ALIVE))
    }

    #[track_caller]
    fn check(&self, what: &str) {
        match self.0.get() {
            ALIVE => {}
            FREED => panic!("{what} was touched after it was freed"),
            _ => panic!("{what} was never initialised, or its memory was given out again"),
        }
    }

    fn end(&self) {
        self.0.set(FREED);
    }
}

/// Plain memory: making it writes, `read` reads, its drop writes again. Loom
/// finds a read that is not ordered after the making or before the drop, and
/// reports one that was never dropped.
pub struct Witness {
    life: Life,
    cell: UnsafeCell<()>,
    _track: Track<()>,
}

// SAFETY: loom runs one thread at a time.
unsafe impl Send for Witness {}
// SAFETY: as above.
unsafe impl Sync for Witness {}

impl Default for Witness {
    fn default() -> Self {
        Self::new()
    }
}

impl Witness {
    #[track_caller]
    pub fn new() -> Self {
        let cell = UnsafeCell::new(());
        cell.with_mut(|_| ());
        Self { life: Life::new(), cell, _track: Track::new(()) }
    }

    #[track_caller]
    pub fn read(&self) {
        self.life.check("a value behind a published pointer");
        self.cell.with(|_| ());
    }
}

impl Drop for Witness {
    #[track_caller]
    fn drop(&mut self) {
        self.life.check("a value that is being dropped");
        self.cell.with_mut(|_| ());
        self.life.end();
    }
}

/// A word of a column.
pub struct Word {
    life: Life,
    cell: UnsafeCell<u64>,
}

// SAFETY: loom runs one thread at a time, and reports races.
unsafe impl Send for Word {}
// SAFETY: as above.
unsafe impl Sync for Word {}

impl Word {
    #[track_caller]
    pub fn new(value: u64) -> Self {
        Self { life: Life::new(), cell: UnsafeCell::new(value) }
    }

    pub fn allocate(count: usize) -> NonNull<Word> {
        let words: Box<[Word]> = (0..count).map(|_| Word::new(0)).collect();
        NonNull::from(Box::leak(words)).cast()
    }

    /// # Safety
    /// As in `real`.
    #[track_caller]
    pub unsafe fn free(words: NonNull<Word>, count: usize) {
        // SAFETY: the box that `allocate` leaked.
        drop(unsafe { Box::from_raw(NonNull::slice_from_raw_parts(words, count).as_ptr()) });
    }

    /// # Safety
    /// As in `real`; checked here, word by word.
    #[track_caller]
    pub unsafe fn copy(from: NonNull<Word>, to: NonNull<Word>, count: usize) {
        for at in 0..count {
            // SAFETY: the caller's word.
            unsafe { to.add(at).as_ref().set(from.add(at).as_ref().get()) };
        }
    }

    /// # Safety
    /// As in `real`; checked here.
    #[track_caller]
    pub unsafe fn set(&self, value: u64) {
        self.life.check("a column");
        // SAFETY: loom gives a pointer to the value.
        self.cell.with_mut(|cell| unsafe { *cell = value });
    }

    /// # Safety
    /// As in `real`; checked here.
    #[track_caller]
    pub unsafe fn get(&self) -> u64 {
        self.life.check("a column");
        // SAFETY: loom gives a pointer to the value.
        self.cell.with(|cell| unsafe { *cell })
    }

    /// # Safety
    /// As in `real`; checked here.
    #[track_caller]
    pub unsafe fn common_prefix(words: &[Word], other: &[u64]) -> usize {
        // SAFETY: the caller's word. All that the window covers is read, as
        // the wide compares do.
        let words: Vec<u64> =
            words.iter().take(other.len()).map(|word| unsafe { word.get() }).collect();
        words.iter().zip(other).take_while(|(a, b)| a == b).count()
    }
}

impl Drop for Word {
    #[track_caller]
    fn drop(&mut self) {
        self.cell.with_mut(|_| ());
        self.life.end();
    }
}

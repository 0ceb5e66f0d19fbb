//! Shared ownership: `Arc` and `Weak`.
//!
//! Values live in memory that is given out from the start again in every run:
//! code that sorts by address repeats itself, and a value is readable, if
//! dead, until its run ends.

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

use super::checker::alloc::Track;
use super::checker::cell::UnsafeCell;
use super::checker::sync::atomic::{AtomicUsize, Ordering, fence};

/// The value comes first: a pointer to it is a pointer to its block.
#[repr(C)]
struct Block<T> {
    value: std::cell::UnsafeCell<ManuallyDrop<T>>,
    /// Reads and the final write of the value, for loom to compare.
    access: UnsafeCell<()>,
    /// What drops and upgrades touch in place of the strong count, so that
    /// loom sees their order and their edges.
    gate: AtomicUsize,
    /// The strong count.
    owners: Cell<usize>,
    /// Loom reports a value that still has owners when the model ends.
    track: RefCell<Option<Track<()>>>,
}

/// Bytes for the shared values of one run.
const ARENA: usize = 4 << 20;

thread_local! {
    static MEMORY: Cell<*mut u8> = const { Cell::new(std::ptr::null_mut()) };
    static USED: Cell<usize> = const { Cell::new(0) };
}

/// A run begins: all its memory is free again.
pub(super) fn begin() {
    if MEMORY.get().is_null() {
        let layout = Layout::from_size_align(ARENA, 4096).expect("a constant");
        // SAFETY: the layout is not empty.
        MEMORY.set(unsafe { std::alloc::alloc(layout) });
    }
    USED.set(0);
}

/// Memory for a block, from the run's.
fn place<T>(block: Block<T>) -> NonNull<Block<T>> {
    let layout = Layout::new::<Block<T>>();
    let at = USED.get().next_multiple_of(layout.align());
    assert!(!MEMORY.get().is_null() && at + layout.size() <= ARENA, "a run's memory is used up");
    USED.set(at + layout.size());
    // SAFETY: the range lies within the memory, aligned, and is given out
    // once a run.
    unsafe {
        let memory = MEMORY.get().add(at).cast::<Block<T>>();
        memory.write(block);
        NonNull::new_unchecked(memory)
    }
}

/// Stands for `std::sync::Arc`: drops release, the last one acquires.
pub struct Arc<T>(NonNull<Block<T>>);

// SAFETY: as the real one; loom runs one thread at a time.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

impl<T> Arc<T> {
    fn block(&self) -> &Block<T> {
        // SAFETY: blocks stay until the run ends.
        unsafe { self.0.as_ref() }
    }

    #[track_caller]
    pub fn new(value: T) -> Self {
        Self(place(Block {
            value: std::cell::UnsafeCell::new(ManuallyDrop::new(value)),
            access: UnsafeCell::new(()),
            gate: AtomicUsize::new(0),
            owners: Cell::new(1),
            track: RefCell::new(Some(Track::new(()))),
        }))
    }

    pub fn as_ptr(this: &Self) -> *const T {
        this.0.as_ptr().cast()
    }

    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.0 == other.0
    }

    pub fn strong_count(this: &Self) -> usize {
        this.block().owners.get()
    }

    pub fn downgrade(this: &Self) -> Weak<T> {
        Weak(Some(this.0))
    }

    pub fn into_raw(this: Self) -> *const T {
        ManuallyDrop::new(this).0.as_ptr().cast()
    }

    /// # Safety
    /// `ptr` came from `into_raw`, whose count this takes over.
    pub unsafe fn from_raw(ptr: *const T) -> Self {
        // SAFETY: the caller's word; the value is its block's first field.
        Self(unsafe { NonNull::new_unchecked(ptr.cast_mut().cast()) })
    }

    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        this.block().gate.fetch_add(1, Ordering::Relaxed);
        if this.block().owners.get() != 1 {
            return None;
        }
        fence(Ordering::Acquire);
        this.block().access.with_mut(|_| ());
        // SAFETY: this is the only owner, and models keep no weak one across
        // a call of this.
        Some(unsafe { &mut *this.block().value.get() })
    }

    /// The value, if this was its last owner.
    pub fn into_inner(this: Self) -> Option<T> {
        let this = ManuallyDrop::new(this);
        let block = this.block();
        // SAFETY: `leave` says that no owner is left to look at the value.
        block.leave().then(|| unsafe { ManuallyDrop::take(&mut *block.value.get()) })
    }

    /// The value, if this is its only owner, in one step.
    pub fn try_unwrap(this: Self) -> Result<T, Self> {
        let block = this.block();
        block.gate.fetch_add(1, Ordering::Relaxed);
        if block.owners.get() != 1 {
            return Err(this);
        }
        block.end();
        let this = ManuallyDrop::new(this);
        // SAFETY: no owner is left to look at the value.
        Ok(unsafe { ManuallyDrop::take(&mut *this.block().value.get()) })
    }
}

impl<T> Block<T> {
    /// One owner leaves; whether it was the last.
    fn leave(&self) -> bool {
        self.gate.fetch_add(1, Ordering::Release);
        let owners = self.owners.get();
        assert!(owners > 0, "an Arc was dropped more often than it was made");
        if owners > 1 {
            self.owners.set(owners - 1);
            return false;
        }
        self.end();
        true
    }

    /// The last owner leaves.
    fn end(&self) {
        self.owners.set(0);
        fence(Ordering::Acquire);
        self.access.with_mut(|_| ());
        self.track.borrow_mut().take();
    }
}

/// One more owner of the value behind `ptr`.
///
/// # Safety
/// As in `real`; that an owner is alive is checked here.
#[track_caller]
pub unsafe fn arc_from_borrowed<T>(ptr: *const T) -> Arc<T> {
    // SAFETY: the caller's word.
    let owner = unsafe { arc_if_owned(ptr) };
    owner.expect("an owner was taken of a value that has none left")
}

/// The same; `None` where no owner is alive.
///
/// # Safety
/// As in `real`, but for the owner.
#[track_caller]
pub unsafe fn arc_if_owned<T>(ptr: *const T) -> Option<Arc<T>> {
    let block = ptr.cast::<Block<T>>();
    // SAFETY: the value is its block's first field, and the block's memory is
    // readable until the model ends, alive or not.
    unsafe {
        // Here others may run, so the owners are counted behind it.
        (*block).gate.fetch_add(1, Ordering::Relaxed);
        let owners = (*block).owners.get();
        (owners > 0).then(|| {
            (*block).owners.set(owners + 1);
            Arc(NonNull::new_unchecked(block.cast_mut()))
        })
    }
}

/// One more link to the value behind `ptr`. Outside of the search, as a clone
/// of a link.
///
/// # Safety
/// As in `real`; that an owner is alive is checked here.
#[track_caller]
pub unsafe fn weak_from_borrowed<T>(ptr: *const T) -> Weak<T> {
    // SAFETY: the value is its block's first field, and the block's memory is
    // readable until the model ends, alive or not.
    unsafe {
        let block = ptr.cast_mut().cast::<Block<T>>();
        assert!((*block).owners.get() > 0, "a link to a value that has no owner left");
        Weak(NonNull::new(block))
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;
    #[track_caller]
    fn deref(&self) -> &T {
        self.block().access.with(|_| ());
        // SAFETY: an owner is here, so the value was not taken.
        unsafe { &*self.block().value.get() }
    }
}

impl<T> Clone for Arc<T> {
    /// Outside of the search: with an owner at hand it commutes with
    /// everything but `strong_count`.
    fn clone(&self) -> Self {
        let owners = &self.block().owners;
        owners.set(owners.get() + 1);
        Self(self.0)
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        if self.block().leave() {
            // SAFETY: the last owner leaves, and the value was not taken.
            unsafe { ManuallyDrop::drop(&mut *self.block().value.get()) }
        }
    }
}

impl<T: Default> Default for Arc<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for Arc<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// Stands for `std::sync::Weak`.
pub struct Weak<T>(Option<NonNull<Block<T>>>);

// SAFETY: as the real one; loom runs one thread at a time.
unsafe impl<T: Send + Sync> Send for Weak<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Weak<T> {}

impl<T> Weak<T> {
    fn block(&self) -> Option<&Block<T>> {
        // SAFETY: blocks stay until the run ends.
        self.0.map(|block| unsafe { block.as_ref() })
    }

    pub const fn new() -> Self {
        Self(None)
    }

    pub fn upgrade(&self) -> Option<Arc<T>> {
        let block = self.block()?;
        block.gate.fetch_add(1, Ordering::Relaxed);
        let owners = block.owners.get();
        if owners == 0 {
            return None;
        }
        // Acquire only where it succeeds, as the real one.
        fence(Ordering::Acquire);
        block.owners.set(owners + 1);
        self.0.map(Arc)
    }

    pub fn as_ptr(&self) -> *const T {
        self.0.map_or(std::ptr::null(), |block| block.as_ptr().cast_const().cast())
    }

    pub fn ptr_eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.as_ptr(), other.as_ptr())
    }

    pub fn strong_count(&self) -> usize {
        self.block().map_or(0, |block| block.owners.get())
    }
}

impl<T> Clone for Weak<T> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<T> Default for Weak<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> std::fmt::Debug for Weak<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(Weak)")
    }
}

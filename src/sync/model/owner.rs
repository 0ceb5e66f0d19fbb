//! Shared ownership: `Arc` and `Weak`.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ops::Deref;

use loom::alloc::Track;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering, fence};

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

/// Stands for `std::sync::Arc`: drops release, the last one acquires.
pub struct Arc<T>(std::sync::Arc<Block<T>>);

// SAFETY: as the real one; loom runs one thread at a time.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

impl<T> Arc<T> {
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self(std::sync::Arc::new(Block {
            value: std::cell::UnsafeCell::new(ManuallyDrop::new(value)),
            access: UnsafeCell::new(()),
            gate: AtomicUsize::new(0),
            owners: Cell::new(1),
            track: RefCell::new(Some(Track::new(()))),
        }))
    }

    pub fn as_ptr(this: &Self) -> *const T {
        std::sync::Arc::as_ptr(&this.0).cast()
    }

    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        std::sync::Arc::ptr_eq(&this.0, &other.0)
    }

    pub fn strong_count(this: &Self) -> usize {
        this.0.owners.get()
    }

    pub fn downgrade(this: &Self) -> Weak<T> {
        Weak(Some(this.0.clone()))
    }

    pub fn into_raw(this: Self) -> *const T {
        let this = ManuallyDrop::new(this);
        // SAFETY: the block leaves `this`, which is not dropped.
        std::sync::Arc::into_raw(unsafe { std::ptr::read(&this.0) }).cast()
    }

    /// # Safety
    /// `ptr` came from `into_raw`, whose count this takes over.
    pub unsafe fn from_raw(ptr: *const T) -> Self {
        // SAFETY: the caller's word; the value is its block's first field.
        Self(unsafe { std::sync::Arc::from_raw(ptr.cast()) })
    }

    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        this.0.gate.fetch_add(1, Ordering::Relaxed);
        if this.0.owners.get() != 1 {
            return None;
        }
        fence(Ordering::Acquire);
        this.0.access.with_mut(|_| ());
        // SAFETY: this is the only owner, and models keep no weak one across
        // a call of this.
        Some(unsafe { &mut *this.0.value.get() })
    }

    /// The value, if this was its last owner.
    pub fn into_inner(this: Self) -> Option<T> {
        let this = ManuallyDrop::new(this);
        // SAFETY: the block leaves `this`, which is not dropped.
        let block = unsafe { std::ptr::read(&this.0) };
        // SAFETY: `leave` says that no owner is left to look at the value.
        block.leave().then(|| unsafe { ManuallyDrop::take(&mut *block.value.get()) })
    }

    pub fn try_unwrap(this: Self) -> Result<T, Self> {
        this.0.gate.fetch_add(1, Ordering::Relaxed);
        if this.0.owners.get() != 1 {
            return Err(this);
        }
        Ok(Self::into_inner(this).expect("the only owner"))
    }
}

impl<T> Block<T> {
    /// One owner leaves; whether it was the last.
    fn leave(&self) -> bool {
        self.gate.fetch_add(1, Ordering::Release);
        let owners = self.owners.get();
        assert!(owners > 0, "an Arc was dropped more often than it was made");
        self.owners.set(owners - 1);
        if owners > 1 {
            return false;
        }
        fence(Ordering::Acquire);
        self.access.with_mut(|_| ());
        self.track.borrow_mut().take();
        true
    }
}

/// One more owner of the value behind `ptr`.
///
/// # Safety
/// As in `real`; that an owner is alive is checked here.
#[track_caller]
pub unsafe fn arc_from_borrowed<T>(ptr: *const T) -> Arc<T> {
    let block = ptr.cast::<Block<T>>();
    // SAFETY: the value is its block's first field, and the block's memory is
    // readable until the model ends, alive or not.
    unsafe {
        (*block).gate.fetch_add(1, Ordering::Relaxed);
        let owners = (*block).owners.get();
        assert!(owners > 0, "an owner was taken of a value that has none left");
        (*block).owners.set(owners + 1);
        std::sync::Arc::increment_strong_count(block);
        Arc(std::sync::Arc::from_raw(block))
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;
    #[track_caller]
    fn deref(&self) -> &T {
        self.0.access.with(|_| ());
        // SAFETY: an owner is here, so the value was not taken.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> Clone for Arc<T> {
    /// Outside of the search: with an owner at hand it commutes with
    /// everything but `strong_count`.
    fn clone(&self) -> Self {
        self.0.owners.set(self.0.owners.get() + 1);
        Self(self.0.clone())
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        if self.0.leave() {
            // SAFETY: the last owner leaves, and the value was not taken.
            unsafe { ManuallyDrop::drop(&mut *self.0.value.get()) }
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
pub struct Weak<T>(Option<std::sync::Arc<Block<T>>>);

// SAFETY: as the real one; loom runs one thread at a time.
unsafe impl<T: Send + Sync> Send for Weak<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Weak<T> {}

impl<T> Weak<T> {
    pub const fn new() -> Self {
        Self(None)
    }

    pub fn upgrade(&self) -> Option<Arc<T>> {
        let block = self.0.as_ref()?;
        block.gate.fetch_add(1, Ordering::Relaxed);
        let owners = block.owners.get();
        if owners == 0 {
            return None;
        }
        // Acquire only where it succeeds, as the real one.
        fence(Ordering::Acquire);
        block.owners.set(owners + 1);
        Some(Arc(block.clone()))
    }

    pub fn as_ptr(&self) -> *const T {
        self.0.as_ref().map_or(std::ptr::null(), |block| std::sync::Arc::as_ptr(block).cast())
    }

    pub fn ptr_eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.as_ptr(), other.as_ptr())
    }

    pub fn strong_count(&self) -> usize {
        self.0.as_ref().map_or(0, |block| block.owners.get())
    }
}

impl<T> Clone for Weak<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
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

//! The value that is replaced whole.

use std::cell::RefCell;
use std::ops::Deref;

use super::checker::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::Guard;
use super::owner::Arc;
use crate::sync::{Mutant, mutant};

/// Stands for `ArcSwap` and the pointer beside it. A peek may see any value
/// that was shown and is not known to be replaced, whether it is still there
/// or not; a load, which only writers do, takes the current one.
pub struct Swap<T> {
    shown: AtomicPtr<T>,
    /// What a load synchronises with.
    changes: AtomicUsize,
    current: RefCell<Arc<T>>,
}

// SAFETY: loom runs one thread at a time.
unsafe impl<T: Send + Sync> Send for Swap<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Swap<T> {}

impl<T> Swap<T> {
    pub fn new(value: Arc<T>) -> Self {
        let shown = AtomicPtr::new(Arc::as_ptr(&value).cast_mut());
        Self { shown, changes: AtomicUsize::new(0), current: RefCell::new(value) }
    }

    #[track_caller]
    pub fn load(&self) -> impl Deref<Target = Arc<T>> + use<T> {
        // No count changes that others could see.
        self.changes.fetch_add(0, Ordering::AcqRel);
        Loaded(self.current.borrow().clone())
    }

    #[track_caller]
    pub fn peek<'g>(&'g self, _: &'g Guard) -> &'g T {
        // SAFETY: memory stays readable until the model's run ends; the value
        // itself knows whether it was dropped.
        unsafe { &*self.shown.load(Ordering::Acquire) }
    }

    #[must_use]
    pub fn replace(&self, value: Arc<T>) -> Arc<T> {
        let release =
            if mutant(Mutant::TableShownRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        self.shown.store(Arc::as_ptr(&value).cast_mut(), release);
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.current.replace(value)
    }
}

struct Loaded<T>(Arc<T>);

impl<T> Deref for Loaded<T> {
    type Target = Arc<T>;
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

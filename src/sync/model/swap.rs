//! The value that is replaced whole.

use std::cell::RefCell;
use std::ops::Deref;

use super::checker::sync::atomic::{AtomicUsize, Ordering};

use super::owner::{Arc, arc_if_owned};

/// Stands for `ArcSwap`: a load may see any value that was current, is not
/// known to be replaced and still has an owner.
pub struct ArcSwap<T> {
    /// How often it was replaced.
    changes: AtomicUsize,
    /// Every value it had and has.
    past: RefCell<Vec<*const T>>,
    current: RefCell<Arc<T>>,
}

// SAFETY: loom runs one thread at a time.
unsafe impl<T: Send + Sync> Send for ArcSwap<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for ArcSwap<T> {}

impl<T> ArcSwap<T> {
    pub fn new(value: Arc<T>) -> Self {
        let past = RefCell::new(vec![Arc::as_ptr(&value)]);
        Self { changes: AtomicUsize::new(0), past, current: RefCell::new(value) }
    }

    #[track_caller]
    pub fn load(&self) -> impl Deref<Target = Arc<T>> + use<T> {
        // Acquire, as the real load; no count changes that others could see.
        let at = self.changes.load(Ordering::Acquire);
        let value = self.past.borrow()[at];
        // SAFETY: values live in `Arc`s of this run.
        let owned = unsafe { arc_if_owned(value) };
        Loaded(owned.unwrap_or_else(|| {
            // Gone by now, so the real load would have seen what came behind.
            self.changes.fetch_add(0, Ordering::Acquire);
            self.current.borrow().clone()
        }))
    }

    #[must_use]
    pub fn swap(&self, value: Arc<T>) -> Arc<T> {
        // Others may run before it, and not again before the end.
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.past.borrow_mut().push(Arc::as_ptr(&value));
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

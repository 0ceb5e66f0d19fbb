//! The value that is replaced whole.

use std::cell::RefCell;
use std::ops::Deref;

use super::checker::sync::atomic::{AtomicUsize, Ordering};

use super::owner::Arc;

/// Stands for `ArcSwap`: a load may see any value that was current and is
/// not known to be replaced. Replaced ones stay until the cell goes.
pub struct Swap<T> {
    current: AtomicUsize,
    values: RefCell<Vec<Arc<T>>>,
}

// SAFETY: loom runs one thread at a time.
unsafe impl<T: Send + Sync> Send for Swap<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Swap<T> {}

impl<T> Swap<T> {
    pub fn new(value: Arc<T>) -> Self {
        Self { current: AtomicUsize::new(0), values: RefCell::new(vec![value]) }
    }

    #[track_caller]
    pub fn load(&self) -> impl Deref<Target = Arc<T>> + use<T> {
        // Acquire, as the real load; no count changes that others could see.
        let at = self.current.load(Ordering::Acquire);
        Loaded(self.values.borrow()[at].clone())
    }

    pub fn store(&self, value: Arc<T>) {
        let at = self.values.borrow().len();
        self.values.borrow_mut().push(value);
        self.current.swap(at, Ordering::AcqRel);
    }
}

struct Loaded<T>(Arc<T>);

impl<T> Deref for Loaded<T> {
    type Target = Arc<T>;
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

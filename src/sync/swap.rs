//! A value that is replaced whole, and read in two ways.

use super::{Arc, ArcSwap, AtomicPtr, Guard, Mutant, Ordering, mutant};

/// The value and its address. Who has a pin [peeks](Self::peek), which is a
/// plain load. Who has none [loads](Self::load) the `ArcSwap`, for two atomic
/// exchanges, and holds up nothing that waits for pins while he looks.
pub(crate) struct Swap<T> {
    current: ArcSwap<T>,
    shown: AtomicPtr<T>,
}

impl<T> Swap<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        let shown = AtomicPtr::new(Arc::as_ptr(&value).cast_mut());
        Self { current: ArcSwap::new(value), shown }
    }

    /// The value of this moment, for as long as the result lives.
    #[inline]
    pub(crate) fn load(&self) -> impl std::ops::Deref<Target = Arc<T>> + use<T> {
        self.current.load()
    }

    /// The value of this moment, for as long as the pin does.
    #[inline]
    #[allow(unsafe_code)]
    pub(crate) fn peek<'g>(&'g self, _: &'g Guard) -> &'g T {
        // Acquire: pairs with the release in `replace`; the value is there.
        let acquire =
            if mutant(Mutant::TablePeekRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        // SAFETY: what `replace` has shown, which is retired once another is
        // shown in its place; the guard was pinned before this load.
        unsafe { &*self.shown.load(acquire) }
    }

    /// Puts `value` in the place of the current one, which is the result, to
    /// be retired. One thread at a time.
    #[must_use]
    pub(crate) fn replace(&self, value: Arc<T>) -> Arc<T> {
        let next = Arc::as_ptr(&value).cast_mut();
        let before = self.current.swap(value);
        // Release: pairs with the acquire in `peek`.
        let release =
            if mutant(Mutant::TableShownRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        self.shown.store(next, release);
        before
    }
}

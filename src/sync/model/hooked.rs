//! The primitives below the stand-ins without loom: plain ones that call a
//! hook before each operation, through which any scheduler of coroutines can
//! switch. Whoever sets the hooks runs all threads on one thread of the
//! system. Every operation is in one order (SeqCst), so this searches the
//! logic of more threads than loom can, and no orderings.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;

/// What the scheduler offers.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// Called before each operation: others may run now.
    pub switch: fn(),
    /// Called while the thread waits for others.
    pub blocked: fn(),
    /// The number of the thread that runs.
    pub thread: fn() -> usize,
}

thread_local! {
    static HOOKS: Cell<Option<Hooks>> = const { Cell::new(None) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

/// Sets the hooks of the models to come.
pub fn set_hooks(hooks: Hooks) {
    HOOKS.set(Some(hooks));
    LIVE.set(0);
    LOCALS.take();
}

/// How many tracked values are alive.
pub fn live() -> isize {
    LIVE.get()
}

fn hooks() -> Hooks {
    HOOKS.get().expect("`set_hooks` comes first")
}

/// More threads than anybody runs.
pub(crate) const MAX_THREADS: usize = 32;

thread_local! {
    static LOCALS: RefCell<BTreeMap<usize, Rc<dyn Any>>> = const { RefCell::new(BTreeMap::new()) };
}

/// A value of each thread's own; there is one such static.
pub(crate) struct Local<T>(PhantomData<fn() -> T>);

impl<T: Default + 'static> Local<T> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }

    pub(crate) fn try_with<R>(&self, f: impl FnOnce(&RefCell<T>) -> R) -> Result<R, ()> {
        let thread = (hooks().thread)();
        let own = LOCALS.with_borrow_mut(|locals| {
            locals.entry(thread).or_insert_with(|| Rc::new(RefCell::new(T::default()))).clone()
        });
        Ok(f(own.downcast_ref().expect("the one static's type")))
    }
}

pub(crate) mod thread {
    /// A thread of the scheduler.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct ThreadId(usize);

    pub(crate) struct Thread(ThreadId);

    pub(crate) fn current() -> Thread {
        Thread(ThreadId((super::hooks().thread)()))
    }

    impl Thread {
        pub(crate) fn id(&self) -> ThreadId {
            self.0
        }
    }

    pub fn yield_now() {
        (super::hooks().blocked)();
    }
}

pub(crate) mod alloc {
    use super::LIVE;

    /// Counts what is alive.
    pub(crate) struct Track<T>(#[allow(dead_code)] T);

    impl<T> Track<T> {
        pub(crate) fn new(value: T) -> Self {
            LIVE.set(LIVE.get() + 1);
            Self(value)
        }
    }

    impl<T> Drop for Track<T> {
        fn drop(&mut self) {
            LIVE.set(LIVE.get() - 1);
        }
    }
}

pub(crate) mod cell {
    /// Nobody else runs during an access.
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

pub(crate) mod sync {
    use std::sync::{LockResult, TryLockError, TryLockResult};
    pub(crate) use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    use super::hooks;

    fn wait<G>(mut attempt: impl FnMut() -> TryLockResult<G>) -> LockResult<G> {
        (hooks().switch)();
        loop {
            match attempt() {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
                Err(TryLockError::WouldBlock) => (hooks().blocked)(),
            }
        }
    }

    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            wait(|| self.0.try_lock())
        }

        pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
            (hooks().switch)();
            self.0.try_lock()
        }

        pub(crate) fn get_mut(&mut self) -> LockResult<&mut T> {
            self.0.get_mut()
        }
    }

    pub(crate) struct RwLock<T>(std::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(std::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
            wait(|| self.0.try_read())
        }

        pub(crate) fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
            wait(|| self.0.try_write())
        }

        pub(crate) fn get_mut(&mut self) -> LockResult<&mut T> {
            self.0.get_mut()
        }
    }

    pub(crate) mod atomic {
        pub(crate) use std::sync::atomic::Ordering;

        use super::hooks;

        pub(crate) fn fence(_: Ordering) {}

        macro_rules! atomics {
            ($($name:ident $(<$of:ident>)? : $value:ty, $($op:ident)*;)*) => {$(
                #[derive(Debug)]
                pub struct $name $(<$of>)? (std::sync::atomic::$name $(<$of>)?);

                #[allow(dead_code)]
                impl $(<$of>)? $name $(<$of>)? {
                    pub fn new(value: $value) -> Self {
                        Self(std::sync::atomic::$name::new(value))
                    }

                    pub fn load(&self, _: Ordering) -> $value {
                        (hooks().switch)();
                        self.0.load(Ordering::SeqCst)
                    }

                    pub fn store(&self, value: $value, _: Ordering) {
                        (hooks().switch)();
                        self.0.store(value, Ordering::SeqCst);
                    }

                    pub fn swap(&self, value: $value, _: Ordering) -> $value {
                        (hooks().switch)();
                        self.0.swap(value, Ordering::SeqCst)
                    }

                    pub fn compare_exchange(
                        &self,
                        current: $value,
                        new: $value,
                        _: Ordering,
                        _: Ordering,
                    ) -> Result<$value, $value> {
                        (hooks().switch)();
                        self.0.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
                    }

                    $(pub fn $op(&self, value: $value, _: Ordering) -> $value {
                        (hooks().switch)();
                        self.0.$op(value, Ordering::SeqCst)
                    })*
                }
            )*};
        }

        atomics! {
            AtomicBool: bool, fetch_or fetch_and;
            AtomicU64: u64, fetch_add fetch_sub fetch_or fetch_and fetch_max;
            AtomicUsize: usize, fetch_add fetch_sub fetch_or fetch_and fetch_max;
            AtomicPtr<T>: *mut T,;
        }

        impl Default for AtomicBool {
            fn default() -> Self {
                Self::new(false)
            }
        }
    }
}

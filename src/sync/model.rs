//! The same faces made of the model checker's primitives.
//!
//! Two things guide the stand-ins. *No stronger than the real thing*: where
//! the real type synchronises less, so does the stand-in, or races would
//! hide. *As few branches as possible*: an operation that commutes with every
//! other of its object is kept out of the search (an `Arc`'s clone, the
//! counters). Loom runs one thread at a time and switches only before an
//! operation on one of its own objects, so plain cells hold what the
//! stand-ins themselves need to know; what one thread may learn of another
//! goes through loom's atomics alone.
//!
//! Freed memory: every stand-in with a drop marks itself, and reading it
//! afterwards is an error with a message. That needs the memory to stay
//! readable until the model's run ends; the test package's allocator sees to
//! it.

#![allow(unsafe_code, missing_docs)]

#[cfg(kvradix_shuttle)]
#[path = "model/hooked.rs"]
pub(crate) mod checker;
#[cfg(not(kvradix_shuttle))]
use loom as checker;

#[cfg(kvradix_shuttle)]
pub use checker::{Hooks, live, set_hooks};

mod hash;
mod lock;
mod map;
mod memory;
mod owner;
mod pool;
mod queue;
mod swap;

#[cfg(kvradix_loom_epoch)]
#[path = "model/collector.rs"]
mod pins;
#[cfg(not(kvradix_loom_epoch))]
#[path = "model/graveyard.rs"]
mod pins;

pub use checker::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};
pub use checker::thread::yield_now;
pub use hash::Fold;
pub use indexmap::{IndexMap as HashMap, IndexSet as HashSet};
pub use lock::{Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};
pub use map::{MOST_TOGETHER, ShardedMap};
pub use memory::{Witness, Word};
pub use owner::{Arc, Weak, arc_from_borrowed, weak_from_borrowed};
pub use pins::{Guard, pin};
pub use pool::{Alarm, TaskPool, limit_retired, retire_limit, ring, run_task};
pub use queue::SegQueue;
pub use swap::ArcSwap;

pub fn prefetch<T>(_: *const T) {}

/// An address that is only prefetched: nothing to search.
pub struct Hint<T>(std::marker::PhantomData<fn() -> T>);

impl<T> Hint<T> {
    pub fn new(_: *const T) -> Self {
        Self(std::marker::PhantomData)
    }

    pub fn set(&self, _: *const T) {}

    pub fn get(&self) -> *const T {
        std::ptr::null()
    }
}

/// Left out of the search.
pub type Counter = std::sync::atomic::AtomicU64;

/// Time stands still: a run of a model has to repeat.
pub struct Clock;

impl Clock {
    pub fn new() -> Self {
        Self
    }

    pub fn now(&self) -> u64 {
        1
    }
}

pub fn rest(_: usize) {
    yield_now();
}

/// Begins a run of a model, on its first thread.
pub fn begin() {
    owner::begin();
    pins::begin();
    pool::begin();
}

/// Ends a run: every other thread was joined. What was never run is dropped.
pub fn end() {
    pool::end();
    pins::end();
}

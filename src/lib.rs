//! A sharded concurrent radix index with lock-free reads: which workers hold
//! how much of a prompt's prefix in their KV caches.

pub mod hash;
pub mod reference;

mod error;
mod event;
mod ids;
mod index;
mod matches;
mod stats;
#[allow(dead_code, unused_imports)]
mod sync;

pub use error::{Refused, StoreError};
pub use event::Event;
pub use ids::{Block, LocalHash, SequenceHash, WorkerId};
pub use index::{Builder, Index, Pool};
pub use matches::{Match, Matches};
pub use stats::Stats;

/// What the models of `loom-tests` need; no part of the library.
#[cfg(kvradix_loom)]
#[doc(hidden)]
pub mod model;

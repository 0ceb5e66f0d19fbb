//! A sharded concurrent radix index with lock-free reads: which workers hold
//! how much of a prompt's prefix in their KV caches.

pub mod hash;
pub mod reference;

mod builder;
mod error;
mod event;
mod ids;
mod index;
mod matches;
mod stats;
mod sync;
mod tree;

pub use builder::{Builder, Pool};
pub use error::{Refused, StoreError};
pub use event::Event;
pub use ids::{Block, LocalHash, SequenceHash, WorkerId};
pub use index::Index;
pub use matches::{Match, Matches};
pub use stats::Stats;

//! What the models need to see: the stand-ins, for tests of their own, and
//! the hooks that end a run, run a pool's task and ring an alarm.

#![allow(missing_docs)]

pub use crate::sync::model::*;
pub use crate::sync::rank::Rank;

/// Whether the sieve has one bit for root children that begin with these blocks.
pub fn share_a_bit(blocks: &[u64]) -> bool {
    crate::tree::share_a_bit(Fold::random(), blocks)
}

/// Poisons a worker, as a panic in its event would.
pub fn poison(index: &crate::Index, worker: crate::WorkerId) {
    index.shared().poison_worker(worker);
}

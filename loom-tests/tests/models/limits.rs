//! The limit of the tree: room is reserved, and given back.

use kvradix::{Index, StoreError};
use kvradix_loom_tests::{Model, saw};

use crate::world::{A, B, K, blocks, depth, on, remove, settle, shared, small, store};

pub const MODELS: &[Model] = &[
    Model::new("two_stores_at_the_limit", two_stores).iterations(25, 600).bound(3).sees(&["1"]),
    Model::new("store_at_the_limit_against_removal_and_reader", removal)
        .iterations(90, 2_000)
        .bound(2)
        .sees(&["refused", "stored"]),
];

/// Whether there was room.
fn stored(index: &Index, worker: kvradix::WorkerId, names: &[u64]) -> bool {
    match index.store(worker, None, &blocks(names)) {
        Ok(()) => true,
        Err(StoreError::IndexFull { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// There is room for one.
fn two_stores() {
    let index = shared(small().max_blocks(2));
    store(&index, K, &[1]);
    let other = on(&index, |index| stored(index, B, &[3]));
    let one = stored(&index, A, &[2]);
    let stored = u32::from(one) + u32::from(other.join());
    assert!(stored <= 1, "above the limit");
    saw(stored);
    settle(&index);
}

/// Whoever sees the block that took the room sees that which made room gone.
fn removal() {
    let index = shared(small().max_blocks(2));
    store(&index, A, &[1, 2]);
    let storing = on(&index, |index| stored(index, B, &[3]));
    let reading = on(&index, |index| {
        if depth(index, &[3], B) == 1 {
            assert!(depth(index, &[1, 2], A) < 2, "above the limit");
        }
    });
    remove(&index, A, &[2]);
    saw(if storing.join() { "stored" } else { "refused" });
    reading.join();
    settle(&index);
}

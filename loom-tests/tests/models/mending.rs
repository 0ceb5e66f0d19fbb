//! Healing a poisoned worker beside others. That a panic leaves nodes whole is
//! what fault-tests show; a model ends at its first panic.

use kvradix::model::poison;
use kvradix_loom_tests::Model;

use crate::world::{
    A, B, K, depth, extend, on, remove, settle, settle_empty, shared, small, store,
};

pub const MODELS: &[Model] = &[
    Model::new("reader_against_healing", reader).iterations(100, 2_000).bound(3),
    Model::new("healing_against_store", stores).iterations(300, 6_000).bound(2),
    Model::new("healing_against_removal_that_empties_the_node", empties)
        .iterations(300, 6_000)
        .bound(2),
    Model::new("healing_against_view_children_that_become_a_table", becomes_hub)
        .iterations(190, 8_000)
        .bound(2),
];

/// Between the panic and the healing the worker is in no answer; after it, it
/// holds nothing.
fn reader() {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    store(&index, A, &[1, 2]);
    poison(&index, A);
    let reading = on(&index, |index| {
        assert_eq!(depth(index, &[1, 2], A), 0, "credited with what a panic has left");
        assert_eq!(depth(index, &[1, 2], K), 2, "a stable holder is short");
    });
    index.clear(A);
    reading.join();
    assert_eq!((index.workers(), index.poisoned()), (vec![A, K], vec![]));
    settle(&index);
    store(&index, A, &[1, 2]);
    assert_eq!(depth(&index, &[1, 2], A), 2);
}

/// What a store takes in the nodes that are gone through is kept.
fn stores() {
    let index = shared(small());
    store(&index, A, &[1, 2]);
    poison(&index, A);
    let storing = on(&index, |index| store(index, B, &[1, 2, 3]));
    index.remove_worker(A);
    storing.join();
    assert_eq!(depth(&index, &[1, 2, 3], B), 3, "a store was lost");
    assert_eq!(index.workers(), [B]);
    settle(&index);
}

fn empties() {
    let index = shared(small());
    store(&index, A, &[1, 2]);
    store(&index, B, &[1, 2]);
    poison(&index, A);
    let removing = on(&index, |index| remove(index, B, &[1, 2]));
    index.remove_worker(A);
    removing.join();
    settle_empty(&index);
}

/// The children are listed while they go to a table.
fn becomes_hub() {
    let index = shared(small());
    // A run that is full, so that what follows hangs below it.
    let full = [1, 2, 3, 4];
    store(&index, K, &full);
    extend(&index, K, 4, &[20]);
    store(&index, A, &[1, 2, 3, 4, 30]);
    poison(&index, A);
    let storing = on(&index, |index| extend(index, K, 4, &[40]));
    index.remove_worker(A);
    storing.join();
    for last in [20, 40] {
        assert_eq!(depth(&index, &[1, 2, 3, 4, last], K), 5, "a store was lost");
    }
    assert_eq!(index.stats().tree_blocks, 6, "what a panic has left is there");
    settle(&index);
}

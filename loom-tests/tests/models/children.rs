//! Writers against writers in one child: joins, detaches, replacements.

use kvradix_loom_tests::{Model, saw, spawn};

use crate::world::{A, B, K, depth, remove, settle, settle_empty, shared, small, store};

pub const MODELS: &[Model] = &[
    Model::new("store_against_removal_that_empties_the_child", store_or_empty)
        .bound(2),
    Model::new("store_against_removal_that_empties_the_child_in_a_hub", store_or_empty_in_hub)
        .bound(2),
    Model::new("two_stores_of_one_new_child", same_child).bound(2),
    Model::new("two_stores_of_one_new_child_in_a_hub", same_child_in_hub).bound(2),
];

/// The store is never lost, and no empty node stays linked.
fn store_or_empty() {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    store(&index, A, &[1, 3]);
    let storing = {
        let index = index.clone();
        spawn(move || store(&index, B, &[1, 3]))
    };
    remove(&index, A, &[3]);
    storing.join();
    assert_eq!(depth(&index, &[1, 3], B), 2, "a store was lost");
    assert_eq!(depth(&index, &[1, 3], A), 1);
    settle(&index);
    assert_eq!(index.stats().nodes, 2);
    saw("done");
}

fn store_or_empty_in_hub() {
    let index = shared(small());
    store(&index, A, &[3]);
    let storing = {
        let index = index.clone();
        spawn(move || store(&index, B, &[3]))
    };
    remove(&index, A, &[3]);
    storing.join();
    assert_eq!(depth(&index, &[3], B), 1, "a store was lost");
    settle(&index);
    assert_eq!(index.stats().nodes, 1);
    remove(&index, B, &[3]);
    settle_empty(&index);
}

/// One node, both hold it, one entry a block.
fn same_child() {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    let storing = {
        let index = index.clone();
        spawn(move || store(&index, B, &[1, 3]))
    };
    store(&index, A, &[1, 3]);
    storing.join();
    assert_eq!(depth(&index, &[1, 3], A), 2, "a store was lost");
    assert_eq!(depth(&index, &[1, 3], B), 2, "a store was lost");
    settle(&index);
    let stats = index.stats();
    assert_eq!((stats.nodes, stats.lookup_entries), (2, 3));
}

fn same_child_in_hub() {
    let index = shared(small());
    let storing = {
        let index = index.clone();
        spawn(move || store(&index, B, &[3]))
    };
    store(&index, A, &[3]);
    storing.join();
    assert_eq!(depth(&index, &[3], A), 1, "a store was lost");
    assert_eq!(depth(&index, &[3], B), 1, "a store was lost");
    settle(&index);
    let stats = index.stats();
    assert_eq!((stats.nodes, stats.lookup_entries), (1, 1));
}

//! The real collector under loom: two threads, a collector of their own.
//! Built by `epoch.sh` alone.

use kvradix_loom_tests::{Model, saw, spawn};

use crate::world::{A, K, depth, extend, remove, settle, shared, small, store};

pub const MODELS: &[Model] = &[
    Model::new("real_epoch_reader_against_detach_and_flush", detach).bound(1).sees(&["1", "2"]),
    Model::new("real_epoch_reader_against_retired_view", view).bound(2).sees(&["1", "2"]),
];

/// A reader in a child that is detached, retired and freed by the flush.
fn detach() {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    store(&index, A, &[1, 3]);
    let reader = {
        let index = index.clone();
        spawn(move || saw(depth(&index, &[1, 3], A)))
    };
    remove(&index, A, &[3]);
    index.flush();
    reader.join();
    // Whether all is freed now is open: the reader's thread may still be pinned
    // while it gives its handle back.
    index.flush();
    settle(&index);
}

/// A reader of a view that is replaced.
fn view() {
    let index = shared(small());
    store(&index, A, &[1]);
    let reader = {
        let index = index.clone();
        spawn(move || saw(depth(&index, &[1, 2], A)))
    };
    extend(&index, A, 1, &[2]);
    reader.join();
    settle(&index);
}

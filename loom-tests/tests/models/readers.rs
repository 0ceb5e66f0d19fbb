//! Readers against writers: windows, trims, holes, tables.

use kvradix_loom_tests::{Model, saw, spawn};

use crate::world::{A, B, K, depth, extend, remove, settle, shared, small, store};

pub const MODELS: &[Model] = &[
    Model::new("reader_against_append", append).bound(3).sees(&["2", "3"]),
    Model::new("reader_against_append_into_a_copy", append_copy).bound(3).sees(&["1", "2"]),
    Model::new("reader_against_trim_and_reappend", reappend).bound(2).sees(&["1", "2"]),
    Model::new("reader_against_detach", detach).bound(2).sees(&["1", "2"]),
];

/// The old window or the new one, and who holds the prefix all along is
/// never short.
fn append() {
    let index = shared(small());
    store(&index, A, &[1]);
    // The first append copies the columns; the next finds room there.
    extend(&index, A, 1, &[2]);
    store(&index, K, &[1, 2]);
    let reader = {
        let index = index.clone();
        spawn(move || {
            let found = index.matches(kvradix::LocalHash::from_slice(&[1, 2, 3]));
            assert_eq!(found.depth_of(K), 2, "a stable holder is short");
            saw(found.depth_of(A));
        })
    };
    extend(&index, A, 2, &[3]);
    reader.join();
    assert_eq!(depth(&index, &[1, 2, 3], A), 3);
    settle(&index);
}

fn append_copy() {
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

/// No slot that an older view covers is written again.
fn reappend() {
    let index = shared(small());
    store(&index, A, &[1]);
    extend(&index, A, 1, &[2]);
    let reader = {
        let index = index.clone();
        spawn(move || saw(depth(&index, &[1, 2], A)))
    };
    remove(&index, A, &[2]);
    extend(&index, A, 1, &[3]);
    reader.join();
    assert_eq!(depth(&index, &[1, 3], A), 2);
    settle(&index);
}

/// A reader on its way into a child that is detached and freed.
fn detach() {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    store(&index, A, &[1, 3]);
    let reader = {
        let index = index.clone();
        spawn(move || {
            let found = index.matches(kvradix::LocalHash::from_slice(&[1, 3]));
            assert_eq!(found.depth_of(K), 1, "a stable holder is short");
            saw(found.depth_of(A));
        })
    };
    remove(&index, A, &[3]);
    reader.join();
    settle(&index);
    let _ = B;
}

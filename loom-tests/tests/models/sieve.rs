//! The sieve before the root's children: its bits come and go with them, and
//! who asks is never told that a child is not there which is.
//!
//! Blocks 1 and 3 share a bit, 4 and 6 another; 2, 5 and 7 have bits of their own.

use kvradix::model::share_a_bit;
use kvradix_loom_tests::{Model, saw};

use crate::world::{A, B, K, depth, named, on, remove, settle, settle_empty, shared, small, store};

pub const MODELS: &[Model] = &[
    Model::new("reader_against_sibling_of_one_bit_that_leaves", sibling_leaves)
        .iterations(60, 1_000)
        .bound(3)
        .sees(&["0", "1"]),
    Model::new("reader_against_moved_name_with_siblings_of_its_bits", moved)
        .iterations(300, 5_000)
        .bound(3)
        .sees(&["0 1", "1 0", "1 1"]),
    Model::new("joiner_that_asks_against_the_child_that_comes", joins)
        .iterations(2_000, 40_000)
        .bound(3),
    Model::new("store_that_asks_against_sibling_of_one_bit_that_leaves", comes)
        .iterations(800, 15_000)
        .bound(3),
    Model::new("store_that_asks_against_removal_of_its_child", comes_again)
        .iterations(1_000, 20_000)
        .bound(3),
    Model::new("reader_against_two_writers_of_one_bit", two_writers)
        .iterations(800, 15_000)
        .bound(2),
    Model::new("reader_against_root_table_that_widens", widens)
        .iterations(150, 3_000)
        .bound(3)
        .sees(&["0", "1"]),
    Model::new("detach_against_root_table_that_widens", widens_and_loses_one)
        .iterations(2_000, 40_000)
        .bound(3),
    Model::new("reader_against_bits_that_are_found_anew", found_anew)
        .iterations(1_000, 20_000)
        .bound(3)
        .sees(&["0", "1"]),
];

/// Who stays keeps the bit.
fn sibling_leaves() {
    assert!(share_a_bit(&[1, 3]));
    let index = shared(small());
    store(&index, K, &[1]);
    store(&index, A, &[3]);
    let reader = on(&index, |index| {
        assert_eq!(depth(index, &[1], K), 1, "a child was missed");
        saw(depth(index, &[3], A));
    });
    remove(&index, A, &[3]);
    reader.join();
    assert_eq!(depth(&index, &[1], K), 1, "a child was missed");
    settle(&index);
    remove(&index, K, &[1]);
    settle_empty(&index);
}

/// The old place's bit goes, the new place's is another child's already, so
/// that nobody sets it.
fn moved() {
    assert!(share_a_bit(&[1, 3]) && !share_a_bit(&[3, 2]));
    let index = shared(small());
    store(&index, K, &[1]);
    index.store(A, None, &[named(7, 2)]).expect("stored");
    let reader = on(&index, |index| {
        let (old, new) = (depth(index, &[2], A), depth(index, &[3], A));
        assert!(old + new > 0, "held throughout, seen nowhere");
        saw(format!("{old} {new}"));
    });
    index.store(A, None, &[named(7, 3)]).expect("stored");
    reader.join();
    assert_eq!((depth(&index, &[2], A), depth(&index, &[3], A)), (0, 1));
    settle(&index);
}

/// Whoever opened the child, its bit is there for all who hold it.
fn joins() {
    let index = shared(small());
    let joining = on(&index, |index| {
        store(index, B, &[3]);
        assert_eq!(depth(index, &[3], B), 1, "a child was missed");
    });
    store(&index, A, &[3]);
    assert_eq!(depth(&index, &[3], A), 1, "a child was missed");
    joining.join();
    settle(&index);
}

/// Who comes while the last of its bit leaves has it all the same.
fn comes() {
    assert!(share_a_bit(&[1, 3]));
    comes_while(1);
}

/// The same at the very key of who leaves.
fn comes_again() {
    comes_while(3);
}

/// A store of 3 while this block's last holder leaves.
fn comes_while(leaving: u64) {
    let index = shared(small());
    store(&index, A, &[leaving]);
    let storing = on(&index, |index| {
        store(index, B, &[3]);
        assert_eq!(depth(index, &[3], B), 1, "a child was missed");
    });
    remove(&index, A, &[leaving]);
    storing.join();
    settle(&index);
    assert_eq!(index.stats().nodes, 1);
}

/// One child of the bit stays; another is left, and taken or opened again.
fn two_writers() {
    assert!(share_a_bit(&[1, 3]));
    let index = shared(small());
    store(&index, K, &[1]);
    store(&index, A, &[3]);
    let storing = on(&index, |index| store(index, B, &[3]));
    let reader = on(&index, |index| {
        assert_eq!(depth(index, &[1], K), 1, "a child was missed");
    });
    remove(&index, A, &[3]);
    storing.join();
    reader.join();
    assert_eq!(depth(&index, &[3], B), 1, "a store was lost");
    settle(&index);
}

/// The wide table stands behind the same sieve.
fn widens() {
    let index = shared(small());
    for block in 1..=5 {
        store(&index, K, &[block]);
    }
    let reader = on(&index, |index| {
        assert_eq!(depth(index, &[2], K), 1, "a child was missed");
        saw(depth(index, &[6], A));
    });
    store(&index, A, &[6]);
    reader.join();
    settle(&index);
    for block in 1..=5 {
        remove(&index, K, &[block]);
    }
    remove(&index, A, &[6]);
    settle_empty(&index);
}

/// Who leaves while it widens, and leaves his bit in the large array before,
/// has none in the wide table, and takes nobody's along.
fn widens_and_loses_one() {
    let index = shared(small());
    for block in [1, 2, 3, 4, 7] {
        store(&index, K, &[block]);
    }
    let removing = on(&index, |index| {
        remove(index, K, &[7]);
        assert_eq!(depth(index, &[2], K), 1, "a child was missed");
    });
    store(&index, A, &[6]);
    removing.join();
    assert_eq!((depth(&index, &[7], K), depth(&index, &[6], A)), (0, 1));
    settle(&index);
}

/// Of eight slots, more than there are units, two are left: the array is
/// replaced by one of four, and who left in the meantime leaves no bit.
fn found_anew() {
    let index = shared(small());
    for block in 1..=5 {
        store(&index, K, &[block]);
    }
    for block in 2..=5 {
        remove(&index, K, &[block]);
    }
    store(&index, K, &[6]);
    remove(&index, K, &[6]);
    let reader = on(&index, |index| {
        assert_eq!(depth(index, &[1], K), 1, "a child was missed");
        saw(depth(index, &[7], A));
    });
    store(&index, A, &[7]);
    reader.join();
    assert_eq!(depth(&index, &[1], K), 1, "a child was missed");
    settle(&index);
}

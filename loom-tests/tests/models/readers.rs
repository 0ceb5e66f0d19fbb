//! Readers against writers: windows, trims, holes, tables, moved names.

use kvradix::model::Arc;
use kvradix::{Block, Index, LocalHash, SequenceHash};
use kvradix_loom_tests::{Model, saw};

use crate::world::{A, B, C, K, depth, extend, named, on, remove, settle, shared, small, store};

pub const MODELS: &[Model] = &[
    Model::new("reader_against_append", append).iterations(70, 1_000).sees(&["2", "3"]),
    Model::new("reader_against_append_into_a_copy", append_copy)
        .iterations(70, 6_000)
        .sees(&["1", "2"]),
    Model::new("reader_against_trim_and_reappend", reappend)
        .iterations(70, 1_000)
        .bound(3)
        .sees(&["1", "2"]),
    Model::new("reader_of_what_a_sole_run_becomes", reappend_seen)
        .iterations(70, 2_000)
        .bound(3)
        .sees(&["1", "2"]),
    Model::new("reader_against_columns_that_are_cut", cut)
        .iterations(50, 2_000)
        .bound(3)
        .sees(&["2"]),
    Model::new("reader_against_columns_that_are_cut_and_grow_again", cut_again)
        .iterations(1_000, 30_000)
        .bound(3)
        .sees(&["3"]),
    Model::new("reader_against_two_copies_of_the_columns", copied_twice)
        .iterations(500, 30_000)
        .bound(3)
        .sees(&["1", "3"]),
    Model::new("reader_against_sole_run_that_is_shared_for_a_while", shared_run)
        .iterations(2_000, 20_000)
        .bound(3)
        .sees(&["0", "1", "2", "3"]),
    Model::new("reader_against_sole_run_that_has_a_child_for_a_while", branched_run)
        .iterations(400, 6_000)
        .bound(3)
        .sees(&["0", "1", "2"]),
    Model::new("reader_against_detach", detach).iterations(30, 600).bound(3).sees(&["1", "2"]),
    Model::new("reader_against_new_child_in_a_table", new_child)
        .iterations(3, 50)
        .sees(&["0", "1"]),
    Model::new("reader_against_table_growth", growth)
        .iterations(200, 3_000)
        .bound(3)
        .sees(&["0", "1"]),
    Model::new("reader_and_insert_against_table_growth", growth_insert)
        .iterations(2_000, 20_000)
        .bound(2),
    Model::new("reader_against_table_that_empties", shrink)
        .iterations(100, 1_000)
        .bound(3)
        .sees(&["0", "1"]),
    Model::new("reader_against_view_children_that_become_a_table", becomes_hub)
        .iterations(200, 4_000)
        .bound(3),
    Model::new("reader_against_table_that_widens", widen)
        .iterations(70, 1_000)
        .bound(3)
        .sees(&["1", "2"]),
    Model::new("reader_against_table_that_widens_behind_a_join", widen_joined)
        .iterations(800, 15_000)
        .bound(3)
        .sees(&["1", "2"]),
    Model::new("insert_and_detach_against_table_that_widens", widen_writers)
        .iterations(2_000, 40_000)
        .bound(2),
    Model::new("reader_against_table_that_becomes_view_children", becomes_few)
        .iterations(10, 200)
        .bound(3),
    Model::new("insert_against_table_that_becomes_view_children", becomes_few_insert)
        .iterations(1_000, 10_000)
        .bound(2),
    Model::new("reader_against_clear", clear).iterations(90, 1_000).bound(3).sees(&["0", "1", "2"]),
    Model::new("retire_limit_against_pinned_reader", limit).iterations(60, 1_000).bound(3),
    Model::new("retire_limit_against_pinned_reader_and_writer", limit_three)
        .iterations(1_000, 20_000)
        .bound(2),
    Model::new("reader_against_hole_opened_and_closed", hole)
        .iterations(70, 1_000)
        .bound(3)
        .sees(&["1", "3"]),
    Model::new("hole_against_store_in_the_same_run", hole_store).iterations(2_000, 40_000).bound(3),
    Model::new("hole_against_store_and_reader", hole_store_read).iterations(1_000, 20_000).bound(2),
    Model::new("reader_against_moved_name", moved)
        .iterations(600, 10_000)
        .bound(3)
        .sees(&["0 1", "1 0", "1 1"]),
    Model::new("reader_against_name_that_moves_between_view_children", moved_child)
        .iterations(190, 5_000)
        .bound(3)
        .sees(&["1 2", "2 1", "2 2"]),
    Model::new("reader_against_new_child_in_a_view", put).iterations(3, 200).sees(&["1", "2"]),
    Model::new("reader_against_view_without_a_slot_left", used_up)
        .iterations(10, 1_000)
        .sees(&["1", "2"]),
    Model::new("reader_of_an_earlier_view_against_child_that_goes_from_the_next", earlier_view)
        .iterations(300, 10_000)
        .bound(3)
        .sees(&["1", "2"]),
    Model::new("reader_against_reused_slot", reused_slot)
        .iterations(500, 8_000)
        .bound(3)
        .sees(&["0", "1"]),
    Model::new("list_of_workers_against_a_reused_slot", listed)
        .iterations(50, 1_000)
        .bound(3)
        .sees(&["A K", "K", "C K"]),
    Model::new("export_of_a_hole_against_its_retake", export_hole).iterations(500, 9_000).bound(3),
    Model::new("export_against_store", export).iterations(300, 6_000).bound(3),
];

/// The old window or the new one, and who holds the prefix all along is
/// never short.
fn append() {
    let index = shared(small());
    store(&index, A, &[1]);
    // The first append copies the columns; the next finds room there.
    extend(&index, A, 1, &[2]);
    store(&index, K, &[1, 2]);
    let reader = on(&index, |index| {
        let found = index.matches(LocalHash::from_slice(&[1, 2, 3]));
        assert_eq!(found.depth_of(K), 2, "a stable holder is short");
        saw(found.depth_of(A));
    });
    extend(&index, A, 2, &[3]);
    reader.join();
    assert_eq!(depth(&index, &[1, 2, 3], A), 3);
    settle(&index);
}

fn append_copy() {
    let index = shared(small());
    store(&index, A, &[1]);
    let reader = on(&index, |index| saw(depth(index, &[1, 2], A)));
    extend(&index, A, 1, &[2]);
    reader.join();
    settle(&index);
}

/// No slot that an older view covers is written again.
fn reappend() {
    let index = shared(small());
    store(&index, A, &[1]);
    extend(&index, A, 1, &[2]);
    let reader = on(&index, |index| saw(depth(index, &[1, 2], A)));
    remove(&index, A, &[2]);
    extend(&index, A, 1, &[3]);
    reader.join();
    assert_eq!(depth(&index, &[1, 3], A), 2);
    settle(&index);
}

/// The run's state is the same word again, of other columns.
fn reappend_seen() {
    let index = shared(small());
    store(&index, A, &[1]);
    extend(&index, A, 1, &[2]);
    let reader = on(&index, |index| saw(depth(index, &[1, 3], A)));
    remove(&index, A, &[2]);
    extend(&index, A, 1, &[3]);
    reader.join();
    settle(&index);
}

/// Behind what is left of the locals stand the names: who looked for more
/// would find block 1's.
fn cut() {
    let index = shared(small().run_blocks(16));
    let run: Vec<_> = (1..=16).map(|n| named(98 + n, n)).collect();
    index.store(A, None, &run).expect("a root store is accepted");
    remove(&index, A, &(103..=114).rev().collect::<Vec<_>>());
    let reader = on(&index, |index| {
        let depth = depth(index, &[1, 2, 99], A);
        assert_eq!(depth, 2, "columns that were cut were read beyond their end");
        saw(depth);
    });
    remove(&index, A, &[102, 101]);
    reader.join();
    settle(&index);
}

/// Cut, and as long again in other columns: the run's state is the same word.
fn cut_again() {
    let index = shared(small().run_blocks(16));
    let run: Vec<_> = (1..=16).map(|n| named(98 + n, n)).collect();
    index.store(A, None, &run).expect("a root store is accepted");
    remove(&index, A, &(103..=114).rev().collect::<Vec<_>>());
    let next: Vec<_> = (4..=4).map(|n| named(198 + n, 20 + n)).collect();
    let reader = on(&index, |index| {
        let depth = depth(index, &[1, 2, 3, 99], A);
        assert_eq!(depth, 3, "columns that were cut were read beyond their end");
        saw(depth);
    });
    remove(&index, A, &[102]);
    index.store(A, Some(SequenceHash(101)), &next).expect("the parent is held");
    reader.join();
    settle(&index);
}

/// As long as it was, in the second of two copies; the first was never so.
fn copied_twice() {
    let index = shared(small());
    store(&index, A, &[1, 2, 3]);
    let reader = on(&index, |index| {
        let depth = depth(index, &[1, 2, 3], A);
        saw(depth);
    });
    remove(&index, A, &[3, 2]);
    extend(&index, A, 1, &[4]);
    remove(&index, A, &[4]);
    extend(&index, A, 1, &[5, 6]);
    reader.join();
    settle(&index);
}

/// Sole, of two, longer, sole again; its first holder is never short.
fn shared_run() {
    let index = shared(small());
    store(&index, A, &[1, 2]);
    let reader = on(&index, |index| {
        let found = index.matches(LocalHash::from_slice(&[1, 2, 3]));
        assert_eq!(found.depth_of(A), 2, "a stable holder is short");
        saw(found.depth_of(B));
    });
    store(&index, B, &[1, 2]);
    extend(&index, B, 2, &[3]);
    remove(&index, B, &[3, 2, 1]);
    reader.join();
    settle(&index);
}

/// Sole, with a child, sole again.
fn branched_run() {
    let index = shared(small());
    store(&index, A, &[1, 2]);
    let reader = on(&index, |index| {
        assert_eq!(depth(index, &[1, 2], A), 2, "a stable holder is short");
        saw(depth(index, &[1, 3], B));
    });
    store(&index, B, &[1, 3]);
    remove(&index, B, &[3, 1]);
    reader.join();
    assert_eq!(depth(&index, &[1, 2], A), 2);
    settle(&index);
}

/// A reader on its way into a child that is detached and freed.
fn detach() {
    detach_after(|_| ());
}

/// The same after `first`, beside the reader too.
fn detach_after(first: impl FnOnce(&Index)) {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    store(&index, A, &[1, 3]);
    let reader = on(&index, |index| {
        let found = index.matches(LocalHash::from_slice(&[1, 3]));
        assert_eq!(found.depth_of(K), 1, "a stable holder is short");
        saw(found.depth_of(A));
    });
    first(&index);
    remove(&index, A, &[3]);
    reader.join();
    settle(&index);
}

/// A slot shows its child whole.
fn new_child() {
    let index = shared(small());
    store(&index, K, &[1]);
    let reader = on(&index, |index| saw(depth(index, &[4], A)));
    store(&index, A, &[4]);
    reader.join();
    settle(&index);
}

/// The fourth child of a shard replaces its array of four.
fn growth() {
    let index = shared(small());
    for block in 1..=3 {
        store(&index, K, &[block]);
    }
    let reader = on(&index, |index| {
        assert_eq!(depth(index, &[2], K), 1, "a child was missed");
        saw(depth(index, &[4], A));
    });
    store(&index, A, &[4]);
    reader.join();
    settle(&index);
    assert_eq!(index.stats().nodes, 4);
}

fn growth_insert() {
    let index = shared(small());
    for block in 1..=3 {
        store(&index, K, &[block]);
    }
    let storing = on(&index, |index| store(index, B, &[5]));
    let reader = on(&index, |index| {
        assert_eq!(depth(index, &[2], K), 1, "a child was missed");
    });
    store(&index, A, &[4]);
    storing.join();
    reader.join();
    assert_eq!((depth(&index, &[4], A), depth(&index, &[5], B)), (1, 1));
    settle(&index);
    assert_eq!(index.stats().nodes, 5);
}

/// The last child of a shard takes the array with it.
fn shrink() {
    let index = shared(small());
    store(&index, A, &[1]);
    let reader = on(&index, |index| saw(depth(index, &[1], A)));
    remove(&index, A, &[1]);
    store(&index, A, &[2]);
    reader.join();
    assert_eq!(depth(&index, &[2], A), 1);
    settle(&index);
}

/// Two children in the view; the third makes a table of them.
fn becomes_hub() {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    store(&index, K, &[1, 3]);
    let reader = on(&index, |index| {
        assert_eq!(depth(index, &[1, 3], K), 2, "a child was missed");
    });
    store(&index, A, &[1, 4]);
    store(&index, A, &[1, 5]);
    reader.join();
    assert_eq!((depth(&index, &[1, 4], A), depth(&index, &[1, 5], A)), (2, 2));
    settle(&index);
}

/// The sixth child of a table of one shard gives it more.
fn widen() {
    let index = five_children();
    let reader = on(&index, |index| {
        let found = index.matches(LocalHash::from_slice(&[1, 12]));
        assert_eq!(found.depth_of(K), 2, "a child was missed");
        saw(depth(index, &[1, 15], A).max(1));
    });
    extend(&index, A, 1, &[15]);
    reader.join();
    settle(&index);
    assert_eq!(index.stats().nodes, 7);
}

/// The same by a store that joins the parent's run first.
fn widen_joined() {
    let index = five_children();
    let reader = on(&index, |index| {
        let found = index.matches(LocalHash::from_slice(&[1, 12]));
        assert_eq!(found.depth_of(K), 2, "a child was missed");
        saw(depth(index, &[1, 15], B).max(1));
    });
    store(&index, B, &[1, 15]);
    reader.join();
    settle(&index);
    assert_eq!(index.stats().nodes, 7);
}

fn five_children() -> Arc<Index> {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    for block in 10..15 {
        store(&index, K, &[1, block]);
    }
    store(&index, A, &[1]);
    index
}

fn widen_writers() {
    let index = five_children();
    let storing = on(&index, |index| store(index, B, &[1, 16]));
    let removing = on(&index, |index| remove(index, K, &[14]));
    extend(&index, A, 1, &[15]);
    storing.join();
    removing.join();
    let found =
        [depth(&index, &[1, 15], A), depth(&index, &[1, 16], B), depth(&index, &[1, 14], K)];
    assert_eq!(found, [2, 2, 1], "a store or a removal was lost");
    settle(&index);
    assert_eq!(index.stats().nodes, 7);
}

/// Three children in a table; when one is left it goes back to the view.
fn becomes_few() {
    let index = three_children();
    let reader = on(&index, |index| {
        assert_eq!(depth(index, &[1, 5], K), 2, "a child was missed");
    });
    remove(&index, A, &[3]);
    reader.join();
    settle(&index);
    assert_eq!(index.stats().nodes, 2);
}

fn three_children() -> Arc<Index> {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    store(&index, A, &[1, 3]);
    store(&index, A, &[1, 4]);
    store(&index, K, &[1, 5]);
    remove(&index, A, &[4]);
    index
}

fn becomes_few_insert() {
    let index = three_children();
    let storing = on(&index, |index| store(index, B, &[1, 6]));
    let reader = on(&index, |index| {
        assert_eq!(depth(index, &[1, 5], K), 2, "a child was missed");
    });
    remove(&index, A, &[3]);
    storing.join();
    reader.join();
    assert_eq!(depth(&index, &[1, 6], B), 2, "a store was lost");
    settle(&index);
    assert_eq!(index.stats().nodes, 3);
}

/// A clear lets go of one node after the other.
fn clear() {
    let index = shared(small().run_blocks(1));
    store(&index, A, &[1, 2]);
    store(&index, K, &[1]);
    let reader = on(&index, |index| {
        let found = index.matches(LocalHash::from_slice(&[1, 2]));
        assert_eq!(found.depth_of(K), 1, "a stable holder is short");
        saw(found.depth_of(A));
    });
    index.clear(A);
    reader.join();
    assert_eq!(index.held(A), 0);
    settle(&index);
    assert_eq!(index.stats().nodes, 1);
}

/// Above the limit a writer reclaims before it goes on, and no more than
/// that: a pin that lasts does not stop it.
fn limit() {
    let index = shared(small());
    store(&index, A, &[1]);
    kvradix::model::limit_retired(0);
    let reader = on(&index, |index| depth(index, &[1, 2], A));
    extend(&index, A, 1, &[2]);
    remove(&index, A, &[2]);
    reader.join();
    index.flush();
    assert_eq!(index.stats().retired_bytes, 0, "nobody is left who could see it");
    settle(&index);
}

fn limit_three() {
    let index = shared(small());
    store(&index, A, &[1]);
    kvradix::model::limit_retired(0);
    let storing = on(&index, |index| store(index, B, &[1, 2]));
    let reader = on(&index, |index| depth(index, &[1, 2], A));
    remove(&index, A, &[1]);
    storing.join();
    reader.join();
    index.flush();
    assert_eq!(index.stats().retired_bytes, 0, "nobody is left who could see it");
    assert_eq!(depth(&index, &[1, 2], B), 2, "a store was lost");
    settle(&index);
}

/// Blocks behind the hole count again once it is closed.
fn hole() {
    let index = shared(small());
    store(&index, A, &[1, 2, 3]);
    let reader = on(&index, |index| saw(depth(index, &[1, 2, 3], A)));
    remove(&index, A, &[2]);
    extend(&index, A, 1, &[2]);
    reader.join();
    assert_eq!(depth(&index, &[1, 2, 3], A), 3);
    settle(&index);
}

fn hole_store() {
    let index = shared(small());
    store(&index, A, &[1, 2, 3]);
    let storing = on(&index, |index| store(index, B, &[1, 2]));
    remove(&index, A, &[2]);
    extend(&index, A, 1, &[2]);
    storing.join();
    assert_eq!(depth(&index, &[1, 2, 3], A), 3);
    assert_eq!(depth(&index, &[1, 2, 3], B), 2);
    settle(&index);
    assert_eq!(index.stats().lookup_entries, 3);
}

fn hole_store_read() {
    let index = shared(small());
    store(&index, A, &[1, 2, 3]);
    let storing = on(&index, |index| store(index, B, &[1, 2]));
    let reader = on(&index, |index| {
        let found = index.matches(LocalHash::from_slice(&[1, 2, 3]));
        assert!(matches!(found.depth_of(A), 1 | 3), "never so much");
        assert!(found.depth_of(B) <= 2);
    });
    remove(&index, A, &[2]);
    extend(&index, A, 1, &[2]);
    storing.join();
    reader.join();
    settle(&index);
}

/// A walk over the old place and then the new one finds the block at one of
/// them at least.
fn moved() {
    let index = shared(small());
    index.store(A, None, &[named(7, 1)]).expect("stored");
    let reader = on(&index, |index| {
        let (old, new) = (depth(index, &[1], A), depth(index, &[2], A));
        assert!(old + new > 0, "held throughout, seen nowhere");
        saw(format!("{old} {new}"));
    });
    index.store(A, None, &[named(7, 2)]).expect("stored");
    reader.join();
    assert_eq!((depth(&index, &[1], A), depth(&index, &[2], A)), (0, 1));
    settle(&index);
}

/// The same where both places are children that one view lists.
fn moved_child() {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    index.store(A, None, &[named(1, 1), named(7, 3)]).expect("stored");
    let reader = on(&index, |index| {
        let (old, new) = (depth(index, &[1, 3], A), depth(index, &[1, 4], A));
        assert!(old + new > 2, "held throughout, seen nowhere");
        saw(format!("{old} {new}"));
    });
    extend_named(&index, 1, named(7, 4));
    reader.join();
    assert_eq!((depth(&index, &[1, 3], A), depth(&index, &[1, 4], A)), (1, 2));
    settle(&index);
}

/// A stores a block below a name of its own.
fn extend_named(index: &Index, parent: u64, block: Block) {
    index.store(A, Some(SequenceHash(parent)), &[block]).expect("the parent is held");
}

/// A child comes into the view that readers have.
fn put() {
    let index = shared(small());
    store(&index, A, &[1, 2]);
    extend(&index, A, 1, &[3]);
    let reader = on(&index, |index| saw(depth(index, &[1, 4], A)));
    extend(&index, A, 1, &[4]);
    reader.join();
    settle(&index);
}

/// Each child that came and went has cost a slot; the fourth needs a view of
/// its own.
fn used_up() {
    let index = shared(small().hub_threshold(3));
    store(&index, A, &[1, 2]);
    extend(&index, A, 1, &[3]);
    for child in 4..7 {
        extend(&index, A, 1, &[child]);
        remove(&index, A, &[child]);
    }
    let reader = on(&index, |index| {
        assert_eq!(depth(index, &[1, 3], A), 2, "a child was missed");
        saw(depth(index, &[1, 7], A));
    });
    extend(&index, A, 1, &[7]);
    reader.join();
    settle(&index);
}

/// The child's slot is in two views, and is taken out of the second one.
fn earlier_view() {
    detach_after(|index| store(index, B, &[1]));
}

/// Nobody is credited with the blocks of who has his slot now.
fn reused_slot() {
    let index = shared(small());
    store(&index, A, &[1]);
    store(&index, K, &[2]);
    let reader = on(&index, |index| {
        let found = index.matches(LocalHash::from_slice(&[2]));
        assert_eq!(found.depth_of(A), 0, "credited with another's blocks");
        saw(found.depth_of(C));
    });
    index.remove_worker(A);
    store(&index, C, &[2]);
    reader.join();
    settle(&index);
    assert_eq!(index.workers(), [C, K]);
}

/// A list is of one moment, and who takes it has no pin that would keep the
/// table for it.
fn listed() {
    let index = shared(small());
    store(&index, A, &[1]);
    store(&index, K, &[2]);
    let reader = on(&index, |index| {
        let name = |worker| match worker {
            A => "A",
            C => "C",
            K => "K",
            other => panic!("{other} was never there"),
        };
        let listed: Vec<_> = index.workers().into_iter().map(name).collect();
        saw(listed.join(" "));
    });
    index.remove_worker(A);
    store(&index, C, &[2]);
    reader.join();
    settle(&index);
}

/// A cut of one worker, whatever others do.
fn export() {
    let index = shared(small());
    store(&index, A, &[1, 2]);
    store(&index, K, &[1]);
    let storing = on(&index, |index| {
        store(index, B, &[1, 3]);
        remove(index, K, &[1]);
    });
    let events = index.export(A);
    storing.join();
    let copy = small().build();
    assert!(copy.apply_all(&events).is_empty());
    assert_eq!((copy.held(A), depth(&copy, &[1, 2], A)), (2, 2));
    settle(&copy);
    settle(&index);
}

/// The hole's block gets another holder, and another name, meanwhile.
fn export_hole() {
    let index = shared(small());
    store(&index, A, &[1, 2, 3]);
    remove(&index, A, &[2]);
    let storing = on(&index, |index| {
        index.store(B, None, &[named(1, 1), named(8, 2), named(9, 3)]).expect("stored");
        remove(index, B, &[8]);
    });
    let events = index.export(A);
    storing.join();
    let copy = small().build();
    assert!(copy.apply_all(&events).is_empty());
    assert_eq!((copy.held(A), depth(&copy, &[1, 2, 3], A)), (2, 1));
    extend(&copy, A, 1, &[2]);
    assert_eq!(depth(&copy, &[1, 2, 3], A), 3);
    settle(&copy);
    settle(&index);
}

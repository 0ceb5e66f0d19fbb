//! Writers against writers in one child: joins, detaches, replacements, and
//! the lookup's entries that go with them.

use kvradix::Index;
use kvradix_loom_tests::{Model, saw};

use crate::world::{
    A, B, C, K, depth, extend, on, remove, settle, settle_empty, shared, small, store,
};

pub const MODELS: &[Model] = &[
    Model::new("store_against_removal_that_empties_the_child", store_or_empty)
        .iterations(1_000, 20_000)
        .bound(3),
    Model::new("store_against_removal_that_empties_the_child_in_a_hub", store_or_empty_in_hub)
        .iterations(600, 10_000)
        .bound(3),
    Model::new("store_against_removal_and_reader", store_or_empty_read)
        .iterations(1_000, 20_000)
        .bound(2),
    Model::new("two_stores_of_one_new_child", same_child).iterations(750, 10_000).bound(3),
    Model::new("two_stores_of_one_new_child_in_a_hub", same_child_in_hub)
        .iterations(400, 7_000)
        .bound(3),
    Model::new("new_child_against_its_holder_by_another_name", joined_while_named)
        .iterations(10_000, 200_000)
        .bound(3),
    Model::new("late_detach_against_replacement", replacement).iterations(500, 8_000).bound(2),
    Model::new("late_detach_against_replacement_in_a_hub", replacement_in_hub)
        .iterations(400, 7_000)
        .bound(2),
    Model::new("late_detach_against_replacement_by_a_third", replacement_by_third)
        .iterations(1_000, 20_000)
        .bound(2),
    Model::new("climbing_detach_against_new_sibling", climb)
        .iterations(2_000, 30_000)
        .bound(3)
        .sees(&["0", "1", "2"]),
    Model::new("two_detaches_that_climb_to_one_parent", climb_both)
        .iterations(600, 10_000)
        .bound(3),
    Model::new("detach_against_a_worker_that_comes_and_goes", come_and_go)
        .iterations(500, 40_000)
        .bound(3),
    Model::new("climbing_detach_against_sibling_and_reader", climb_read)
        .iterations(2_000, 30_000)
        .bound(2),
    Model::new("last_holder_leaves_while_another_takes", last_holder)
        .iterations(500, 8_000)
        .bound(3),
    Model::new("last_holder_leaves_while_two_take", last_holder_three)
        .iterations(2_000, 30_000)
        .bound(2),
    Model::new("same_name_at_two_places_while_one_goes", name_elsewhere)
        .iterations(300, 5_000)
        .bound(3),
    Model::new("batch_of_names_that_another_place_has_while_it_goes", names_elsewhere)
        .iterations(300, 20_000)
        .bound(3)
        .sees(&["0", "1", "2", "3"]),
    Model::new("holder_of_a_batch_leaves_while_another_takes_it", last_holder_of_batch)
        .iterations(300, 20_000)
        .bound(2),
    Model::new("moved_name_against_holder_that_leaves_its_old_place", left_before_moved)
        .iterations(600, 12_000)
        .bound(3),
];

/// The store is never lost, and no empty node stays linked.
fn store_or_empty() {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    store(&index, A, &[1, 3]);
    let storing = on(&index, |index| store(index, B, &[1, 3]));
    remove(&index, A, &[3]);
    storing.join();
    after_store_or_empty(&index);
}

fn after_store_or_empty(index: &Index) {
    assert_eq!(depth(index, &[1, 3], B), 2, "a store was lost");
    assert_eq!(depth(index, &[1, 3], A), 1);
    settle(index);
    assert_eq!(index.stats().nodes, 2);
}

fn store_or_empty_in_hub() {
    let index = shared(small());
    store(&index, A, &[3]);
    let storing = on(&index, |index| store(index, B, &[3]));
    remove(&index, A, &[3]);
    storing.join();
    assert_eq!(depth(&index, &[3], B), 1, "a store was lost");
    settle(&index);
    assert_eq!(index.stats().nodes, 1);
    remove(&index, B, &[3]);
    settle_empty(&index);
}

/// The same with a reader, who sees a stable holder whole.
fn store_or_empty_read() {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    store(&index, A, &[1, 3]);
    let storing = on(&index, |index| store(index, B, &[1, 3]));
    let reading = on(&index, |index| {
        assert_eq!(depth(index, &[1, 3], K), 1, "a stable holder is short");
    });
    remove(&index, A, &[3]);
    storing.join();
    reading.join();
    after_store_or_empty(&index);
}

/// One node, both hold it, one entry a block.
fn same_child() {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    let storing = on(&index, |index| store(index, B, &[1, 3]));
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
    let storing = on(&index, |index| store(index, B, &[3]));
    store(&index, A, &[3]);
    storing.join();
    assert_eq!(depth(&index, &[3], A), 1, "a store was lost");
    assert_eq!(depth(&index, &[3], B), 1, "a store was lost");
    settle(&index);
    let stats = index.stats();
    assert_eq!((stats.nodes, stats.lookup_entries), (1, 1));
}

/// Who joins a child that was just linked finds its blocks named. Nobody has a
/// block 9: B's removal does not begin with what it stored last, and asks the
/// lookup.
fn joined_while_named() {
    let index = shared(small());
    let storing = on(&index, |index| {
        store(index, B, &[3]);
        remove(index, B, &[9, 3]);
    });
    store(&index, A, &[3]);
    remove(&index, A, &[3]);
    storing.join();
    settle_empty(&index);
}

/// A detach that comes when another node has the child's key leaves it.
fn replacement() {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    store(&index, A, &[1, 3]);
    let storing = on(&index, |index| {
        store(index, B, &[1, 3]);
        remove(index, B, &[3]);
        store(index, B, &[1, 3]);
    });
    remove(&index, A, &[3]);
    storing.join();
    after_store_or_empty(&index);
}

fn replacement_in_hub() {
    let index = shared(small());
    store(&index, A, &[3]);
    let storing = on(&index, |index| {
        store(index, B, &[3]);
        remove(index, B, &[3]);
        store(index, B, &[3]);
    });
    remove(&index, A, &[3]);
    storing.join();
    assert_eq!(depth(&index, &[3], B), 1, "a store was lost");
    settle(&index);
    assert_eq!((index.stats().nodes, index.stats().lookup_entries), (1, 1));
}

fn replacement_by_third() {
    let index = shared(small());
    store(&index, K, &[1, 2]);
    store(&index, A, &[1, 3]);
    store(&index, B, &[1, 3]);
    let removing = on(&index, |index| remove(index, B, &[3]));
    let storing = on(&index, |index| store(index, C, &[1, 3]));
    remove(&index, A, &[3]);
    removing.join();
    storing.join();
    assert_eq!(depth(&index, &[1, 3], C), 2, "a store was lost");
    settle(&index);
    assert_eq!(index.stats().nodes, 2);
}

/// One-block nodes 1 → 2, of which only 2 is held: who lets go of it empties
/// both, while a sibling of 2 is stored.
fn climb() {
    let index = shared(small().run_blocks(1));
    store(&index, A, &[1, 2]);
    remove(&index, A, &[1]);
    let storing = on(&index, |index| store(index, B, &[1, 3]));
    remove(&index, A, &[2]);
    saw(depth(&index, &[1, 3], B));
    storing.join();
    assert_eq!(depth(&index, &[1, 3], B), 2, "a store was lost");
    settle(&index);
    assert_eq!(index.stats().nodes, 2);
    remove(&index, B, &[1]);
    remove(&index, B, &[3]);
    settle_empty(&index);
}

/// Between a node's last removal and its detach another worker may take it,
/// let it go and detach it, and its parent too.
fn come_and_go() {
    let index = shared(small().run_blocks(1));
    store(&index, A, &[1, 2]);
    remove(&index, A, &[1]);
    let other = on(&index, |index| {
        store(index, B, &[1, 2]);
        remove(index, B, &[1, 2]);
    });
    remove(&index, A, &[2]);
    other.join();
    settle_empty(&index);
}

fn climb_read() {
    let index = shared(small().run_blocks(1));
    store(&index, A, &[1, 2]);
    remove(&index, A, &[1]);
    let storing = on(&index, |index| store(index, B, &[1, 3]));
    let reading = on(&index, |index| {
        assert_eq!(depth(index, &[1, 2], A), 0, "it does not hold the first block");
    });
    remove(&index, A, &[2]);
    storing.join();
    reading.join();
    assert_eq!(depth(&index, &[1, 3], B), 2, "a store was lost");
    settle(&index);
}

/// Two branches below 1 lose their last holders at once; whoever comes
/// second takes 1 along.
fn climb_both() {
    let index = shared(small().run_blocks(1));
    store(&index, A, &[1, 2]);
    store(&index, B, &[1, 3]);
    remove(&index, A, &[1]);
    remove(&index, B, &[1]);
    let removing = on(&index, |index| remove(index, B, &[3]));
    remove(&index, A, &[2]);
    removing.join();
    settle_empty(&index);
}

/// Block 2 stays as an ancestor of 3; its entry is there exactly while
/// somebody holds it.
fn last_holder() {
    let index = shared(small());
    store(&index, K, &[1, 2, 3]);
    store(&index, A, &[1, 2]);
    remove(&index, K, &[2]);
    let storing = on(&index, |index| store(index, B, &[1, 2]));
    remove(&index, A, &[2]);
    storing.join();
    assert!(index.has(B, kvradix::SequenceHash(2)), "the entry is gone");
    settle(&index);
    assert_eq!(index.stats().lookup_entries, 3);
    remove(&index, B, &[2]);
    settle(&index);
    assert_eq!(index.stats().lookup_entries, 2);
}

fn last_holder_three() {
    let index = shared(small());
    store(&index, K, &[1, 2, 3]);
    store(&index, A, &[1, 2]);
    remove(&index, K, &[2]);
    let b = on(&index, |index| store(index, B, &[1, 2]));
    let c = on(&index, |index| {
        store(index, C, &[1, 2]);
        remove(index, C, &[2]);
    });
    remove(&index, A, &[2]);
    b.join();
    c.join();
    assert!(index.has(B, kvradix::SequenceHash(2)), "the entry is gone");
    settle(&index);
    assert_eq!(index.stats().lookup_entries, 3);
}

/// A's name 7 is another place's than B's: removing one entry leaves the
/// other.
fn name_elsewhere() {
    let index = shared(small());
    store(&index, K, &[1]);
    index.store(A, None, &[crate::world::named(7, 5)]).expect("stored");
    let storing = on(&index, extend_named);
    remove(&index, A, &[7]);
    storing.join();
    assert!(index.has(B, kvradix::SequenceHash(7)), "the name is gone");
    assert_eq!(depth(&index, &[6], B), 1);
    settle(&index);
    remove(&index, B, &[7]);
    assert_eq!(depth(&index, &[6], B), 0);
    settle(&index);
    extend(&index, K, 1, &[2]);
}

fn extend_named(index: &Index) {
    index.store(B, None, &[crate::world::named(7, 6)]).expect("stored");
}

/// A batch so long that its names go into the lookup a shard after the other,
/// and out again: between the shards B finds some of A's names there and others
/// not. Each is its holder's own all the same.
fn names_elsewhere() {
    let index = shared(small());
    let chain = |from: u64| [5, 6, 7].map(|name| crate::world::named(name, from + name));
    index.store(A, None, &chain(10)).expect("stored");
    let storing = on(&index, move |index| index.store(B, None, &chain(20)).expect("stored"));
    remove(&index, A, &[7, 6, 5]);
    storing.join();
    assert_eq!((depth(&index, &[15], A), depth(&index, &[25, 26, 27], B)), (0, 3));
    // Names that B found free are canonical; the others are its private ones.
    saw(index.stats().lookup_entries);
    settle(&index);
    remove(&index, B, &[7, 6, 5]);
    settle_empty(&index);
}

/// B takes the very blocks that A leaves: names that go together against names
/// that are taken one by one, in the same node. Each block has an entry as long
/// as one of them holds it.
fn last_holder_of_batch() {
    let index = shared(small());
    store(&index, A, &[1, 2, 3, 4]);
    let storing = on(&index, |index| store(index, B, &[1, 2, 3, 4]));
    remove(&index, A, &[4, 3, 2, 1]);
    storing.join();
    assert_eq!(depth(&index, &[1, 2, 3, 4], B), 4);
    assert_eq!(index.stats().lookup_entries, 4, "an entry for each block");
    settle(&index);
    remove(&index, B, &[4, 3, 2, 1]);
    settle_empty(&index);
}

/// A's name 7 is B's at block 2 when the batch begins. B leaves that block
/// before the batch takes it under another name, so it is no old place of 7
/// that A would have to give up.
fn left_before_moved() {
    let index = shared(small().run_blocks(1));
    store(&index, K, &[1, 2, 3]);
    remove(&index, K, &[2]);
    let named = crate::world::named;
    index.store(B, None, &[named(11, 1), named(7, 2)]).expect("stored");
    let storing = on(&index, move |index| {
        index.store(A, None, &[named(7, 1), named(12, 2)]).expect("stored");
    });
    remove(&index, B, &[7]);
    storing.join();
    assert_eq!((index.held(A), depth(&index, &[1, 2], A)), (2, 2), "a store was lost");
    settle(&index);
}

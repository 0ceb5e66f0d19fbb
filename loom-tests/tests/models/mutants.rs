//! The negative controls: which step is left out, and which model must say
//! what.

use kvradix_loom_tests::{Model, Negative};

const fn kills(
    mutant: &'static str,
    step: &'static str,
    model: &'static str,
    message: &'static str,
) -> Negative {
    Negative { mutant, step, model, message: Some(message) }
}

/// Panics unless ARCHITECTURE.md names every model of the library and every
/// step that is left out.
pub fn check_named(models: &[Model]) {
    let text = include_str!("../../../ARCHITECTURE.md");
    let models = models.iter().map(|model| model.name);
    let of_the_bench = |name: &&str| name.starts_with("stand_in_") || name.starts_with("bench_");
    let mutants = MUTANTS.iter().filter(|mutant| mutant.message.is_some());
    for name in models.filter(|name| !of_the_bench(name)).chain(mutants.map(|m| m.mutant)) {
        assert!(text.contains(&format!("`{name}`")), "ARCHITECTURE.md does not name {name}");
    }
}

/// Panics unless every switch of the library is in the table.
#[cfg(not(kvradix_loom_epoch))]
pub fn check_complete() {
    let source = include_str!("../../../src/sync/mutant.rs");
    let body = source.split_once("pub enum Mutant {").expect("the enum").1;
    let body = body.split_once('}').expect("its end").0;
    let names = body.lines().filter_map(|line| line.trim().strip_suffix(','));
    let names: Vec<_> = names.filter(|name| name.chars().all(char::is_alphanumeric)).collect();
    assert!(names.len() > 20, "the enum reads otherwise than it did");
    for name in names {
        assert!(MUTANTS.iter().any(|mutant| mutant.mutant == name), "{name} is in no row");
    }
}

#[cfg(kvradix_loom_epoch)]
pub fn check_complete() {}

#[cfg(kvradix_loom_epoch)]
pub const MUTANTS: &[Negative] = &[
    kills(
        "NoPin",
        "a walk is pinned, with the real collector",
        "real_epoch_reader_against_detach_and_flush",
        "touched after it was freed",
    ),
    kills(
        "FreeAtOnce",
        "what an event retired waits for the pins, with the real collector",
        "real_epoch_reader_against_retired_view",
        "touched after it was freed",
    ),
];

#[cfg(not(kvradix_loom_epoch))]
pub const MUTANTS: &[Negative] = &[
    kills(
        "ViewPublishRelaxed",
        "a view is published by a release",
        "reader_against_append",
        "Causality violation",
    ),
    kills(
        "ViewLoadRelaxed",
        "a view is loaded by an acquire",
        "reader_against_append",
        "Causality violation",
    ),
    kills(
        "ColumnsMoveRelaxed",
        "the columns of a sole holder's run are shown by a release",
        "reader_against_append_into_a_copy",
        "Causality violation",
    ),
    kills(
        "ColumnsLoadRelaxed",
        "the columns of a sole holder's run are loaded by an acquire",
        "reader_against_append_into_a_copy",
        "Causality violation",
    ),
    kills(
        "ColumnsUnchecked",
        "who has loaded a run's state looks at the columns' address once more",
        "reader_against_columns_that_are_cut_and_grow_again",
        "read beyond their end",
    ),
    kills(
        "ColumnsCutEarly",
        "shorter columns are shown after the view that does with them",
        "reader_against_columns_that_are_cut",
        "read beyond their end",
    ),
    kills(
        "FreeAtOnce",
        "what an event retired waits for the pins",
        "reader_against_detach",
        "touched after it was freed",
    ),
    kills(
        "FreeAtOnce",
        "a child that an earlier view names waits for the pins",
        "reader_of_an_earlier_view_against_child_that_goes_from_the_next",
        "touched after it was freed",
    ),
    kills(
        "NodeFreedAtOnce",
        "the parent of a node that is detached waits for the pins",
        "detach_against_a_worker_that_comes_and_goes",
        "touched after it was freed",
    ),
    kills("NoPin", "a walk is pinned", "reader_against_detach", "touched after it was freed"),
    kills(
        "NoReclaim",
        "a writer frees what no pin holds back",
        "retire_limit_against_pinned_reader",
        "nobody is left who could see it",
    ),
    kills(
        "PopUnlocked",
        "a drain has the lane's lock from its first pop on",
        "queued_removal_against_later_store",
        "a removal overtook a store",
    ),
    kills(
        "ClimbStops",
        "a detach goes on with the parent that it emptied",
        "climbing_detach_against_new_sibling",
        "an empty node is linked",
    ),
    kills(
        "DepartedLate",
        "a leaving lane's figures change their place as one step",
        "stats_against_leaving_worker",
        "went uncounted",
    ),
    kills(
        "NoHighWaterMark",
        "a slot that an older view covers is not written again",
        "reader_against_trim_and_reappend",
        "Causality violation",
    ),
    kills(
        "DetachUnchecked",
        "a detach looks again whether the child is empty",
        "store_against_removal_that_empties_the_child",
        "a store was lost",
    ),
    kills(
        "DetachUncheckedInHub",
        "the same in a hub",
        "store_against_removal_that_empties_the_child_in_a_hub",
        "a store was lost",
    ),
    kills(
        "DetachByKey",
        "a detach takes out this very node and no other",
        "late_detach_against_replacement_in_a_hub",
        "a store was lost",
    ),
    kills(
        "NoMark",
        "a detached node is marked",
        "store_against_removal_that_empties_the_child",
        "a store was lost",
    ),
    kills(
        "MarkIgnored",
        "a store asks for the mark under the node's lock",
        "store_against_removal_that_empties_the_child",
        "a store was lost",
    ),
    kills(
        "MarkShownEarly",
        "the parent's view is out before the mark can be met",
        "store_against_removal_that_empties_the_child",
        "maximum number of branches",
    ),
    kills(
        "EntryStays",
        "the last holder removes the entry",
        "last_holder_leaves_while_another_takes",
        "lookup entries",
    ),
    kills(
        "NoFlag",
        "a block whose name is another place's entry is flagged",
        "same_name_at_two_places_while_one_goes",
        "lookup entries",
    ),
    kills(
        "TogetherUnchecked",
        "names that come into the lookup together are asked for one by one",
        "batch_of_names_that_another_place_has_while_it_goes",
        "lookup entries",
    ),
    kills(
        "RetakeWithoutEntry",
        "who takes an ownerless block again makes its entry",
        "last_holder_leaves_while_another_takes",
        "lookup entries",
    ),
    kills(
        "HubInsertUnchecked",
        "a hub's key is looked for again under the shard's lock",
        "two_stores_of_one_new_child_in_a_hub",
        "a store was lost",
    ),
    kills(
        "LinkedUnlocked",
        "a new child stays locked until its blocks are named",
        "new_child_against_its_holder_by_another_name",
        "counted and seen",
    ),
    kills(
        "SlotPutRelaxed",
        "a table's slot shows its child by a release",
        "reader_against_new_child_in_a_table",
        "Causality violation",
    ),
    kills(
        "SlotPutRelaxed",
        "a view's slot shows its child by a release",
        "reader_against_new_child_in_a_view",
        "Causality violation",
    ),
    kills(
        "SlotTakeRelaxed",
        "a view's slot loses its child by a release",
        "reader_against_name_that_moves_between_view_children",
        "held throughout, seen nowhere",
    ),
    kills(
        "SlotLoadRelaxed",
        "a view's slot is loaded by an acquire",
        "reader_against_new_child_in_a_view",
        "Causality violation",
    ),
    kills(
        "SlotTakeRelaxed",
        "a table's slot loses its child by a release",
        "reader_against_moved_name",
        "held throughout, seen nowhere",
    ),
    kills(
        "HubResizeRelaxed",
        "a hub's new array is shown by a release",
        "reader_against_table_growth",
        "Causality violation",
    ),
    kills(
        "SieveLoadRelaxed",
        "the sieve is asked by an acquire",
        "reader_against_moved_name",
        "held throughout, seen nowhere",
    ),
    kills(
        "SieveSetLate",
        "a child's bit is set before others can join it",
        "joiner_that_asks_against_the_child_that_comes",
        "a child was missed",
    ),
    kills(
        "SieveClearRelaxed",
        "a bit is cleared by a release",
        "reader_against_moved_name",
        "held throughout, seen nowhere",
    ),
    kills(
        "SieveClearUnchecked",
        "a bit stays while other children have it",
        "reader_against_sibling_of_one_bit_that_leaves",
        "a child was missed",
    ),
    kills(
        "SieveKeepsNone",
        "bits that are found anew are those of the children",
        "reader_against_bits_that_are_found_anew",
        "a child was missed",
    ),
    kills(
        "TableBeforePin",
        "a reader takes the workers' table under its pin",
        "reader_against_reused_slot",
        "credited with another's blocks",
    ),
    kills(
        "TableShownRelaxed",
        "the workers' next table is shown by a release",
        "reader_against_reused_slot",
        "Causality violation",
    ),
    kills(
        "TablePeekRelaxed",
        "a reader takes the workers' table by an acquire",
        "reader_against_reused_slot",
        "Causality violation",
    ),
    kills(
        "TableFreedAtOnce",
        "a workers' table that was replaced waits for the pins",
        "reader_against_reused_slot",
        "touched after it was freed",
    ),
    kills(
        "SlotAtOnce",
        "a leaver's slot waits for the pins",
        "reader_against_reused_slot",
        "credited with another's blocks",
    ),
    kills(
        "StoreBeforeDrain",
        "a store applies what was queued before it",
        "queued_removal_against_later_store",
        "a removal overtook a store",
    ),
    kills(
        "AppliedCountedEarly",
        "a removal is counted as applied once it is visible",
        "flush_against_drain_by_the_pool",
        "invisible after a flush",
    ),
    kills(
        "AppliedRelaxed",
        "a removal is counted as applied by a release",
        "flush_against_drain_by_the_pool",
        "invisible after a flush",
    ),
    kills(
        "FlushAsksTheQueue",
        "a flush waits for popped names too",
        "flush_against_drain_by_the_pool",
        "invisible after a flush",
    ),
    kills(
        "MovedNamesFirst",
        "a moved name gives up its old place last",
        "reader_against_moved_name",
        "held throughout, seen nowhere",
    ),
    kills(
        "ScheduledClearedLate",
        "a task clears its flag before it drains",
        "removals_against_their_own_task",
        "a wake-up was lost",
    ),
    kills(
        "ListedClearedLate",
        "a lane leaves the list before it is drained",
        "removals_against_the_alarm_and_its_task",
        "a wake-up was lost",
    ),
    kills(
        "ArmedClearedLate",
        "the alarm is off before its list is emptied",
        "removals_against_the_alarm",
        "a wake-up was lost",
    ),
    kills(
        "StoreIntoClosed",
        "a store begins anew where the lane is closed",
        "leaving_worker_against_its_store",
        "hold blocks, but have no lane",
    ),
    kills(
        "RemoveIntoClosed",
        "a remover looks whether the lane is closed",
        "leaving_worker_against_its_removal",
        "a removal was lost",
    ),
    kills(
        "LeftTakenEarly",
        "a task takes what it will drain once the lane is off the list",
        "removal_against_a_drain_that_ends_with_what_it_found",
        "a wake-up was lost",
    ),
    kills(
        "PartUnlisted",
        "a lane that is drained in part stays on the list",
        "removal_above_the_bound_against_the_alarm",
        "a wake-up was lost",
    ),
    kills(
        "DrainerUnlisted",
        "who drains above the bound lists the lane all the same",
        "removal_above_the_bound_against_the_alarm",
        "a wake-up was lost",
    ),
    kills(
        "SuspectUnnamed",
        "a moved name's old place is asked for that name",
        "moved_name_against_holder_that_leaves_its_old_place",
        "a store was lost",
    ),
    kills(
        "HoleUnseen",
        "a hole shows in the worker's level",
        "reader_against_hole_opened_and_closed",
        "lookup entries",
    ),
    kills(
        "TableLeavesOne",
        "view children all go to the table",
        "reader_against_view_children_that_become_a_table",
        "a child was missed",
    ),
    kills(
        "WideLeavesOne",
        "a table's children all go to the wide one",
        "reader_against_table_that_widens",
        "a child was missed",
    ),
    kills(
        "FewLeaveOne",
        "a table's children all go back to the view",
        "reader_against_table_that_becomes_view_children",
        "a child was missed",
    ),
    kills(
        "LaneUnchecked",
        "a lane is looked for again under the registry's lock",
        "two_first_stores_of_one_worker",
        "one worker has one lane",
    ),
    kills(
        "SlotLoadRelaxed",
        "a table's slot is loaded by an acquire",
        "reader_against_new_child_in_a_table",
        "Causality violation",
    ),
    kills(
        "ReadyRelaxed",
        "a batch's flag is read by an acquire",
        "retire_limit_against_pinned_reader",
        "Causality violation",
    ),
    kills(
        "ScheduledRelaxed",
        "remover and task tell each other what came before",
        "removals_against_their_own_task",
        "a wake-up was lost",
    ),
    kills(
        "RoomUnreserved",
        "a store takes its room in the step that finds it",
        "two_stores_at_the_limit",
        "above the limit",
    ),
    kills(
        "RoomRelaxed",
        "a removal gives its room back by a release",
        "store_at_the_limit_against_removal_and_reader",
        "above the limit",
    ),
    kills(
        "RoomGivenBackEarly",
        "a removal gives its room back once its blocks are gone",
        "store_at_the_limit_against_removal_and_reader",
        "above the limit",
    ),
    kills(
        "HealedBeforeBits",
        "a healed worker is in answers again once its bits are gone",
        "reader_against_healing",
        "credited with what a panic has left",
    ),
    Negative {
        mutant: "Harmless",
        step: "none: a view is published by SeqCst",
        model: "reader_against_append",
        message: None,
    },
];

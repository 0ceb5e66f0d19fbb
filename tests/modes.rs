//! Randomised streams hold the index to the reference, mode by mode, each
//! under every set-up of `common::compare::SETUPS`.
//!
//! `KVRADIX_TEST_QUERIES` is the number of questions per mode,
//! `KVRADIX_TEST_SEED` gives other streams.

mod common;

use common::compare::{hold, hold_to_reference};
use common::stream::{Eviction, Mode, Naming, stream};
use kvradix::reference::ReferenceIndex;

/// The table of modes: each is a test that takes the base mode and says what
/// is different.
macro_rules! modes {
    ($($name:ident: { $($field:ident: $value:expr),* $(,)? };)*) => {
        $(
            #[test]
            fn $name() {
                let mode = Mode { $($field: $value,)* ..Mode::BASE };
                hold_to_reference(stringify!($name), mode);
            }
        )*

        const MODES: &[(&str, Mode)] = &[$(
            (stringify!($name), Mode { $($field: $value,)* ..Mode::BASE }),
        )*];
    };
}

modes! {
    tail_first_eviction: { eviction: Eviction::TailFirst };
    any_block_eviction: {};
    last_stored_first: { eviction: Eviction::LastStored };
    last_stored_first_in_long_batches: {
        eviction: Eviction::LastStored, batch: 64, prompt: 300, workers: 3,
    };
    last_stored_first_under_moved_and_second_names: {
        eviction: Eviction::LastStored, naming: Naming::TwoShared, moves: 8,
    };
    three_hundred_workers_tail_first: { workers: 300, eviction: Eviction::TailFirst };
    three_hundred_workers_any_block: { workers: 300 };
    three_hundred_workers_with_their_own_names: { workers: 300, naming: Naming::PerWorker };
    one_block_at_a_time: { batch: 1, alphabet: 2 };
    long_batches: { batch: 64, prompt: 300 };
    batches_brought_together: { batch: 600, prompt: 1_500, workers: 3 };
    batches_brought_together_of_names_of_their_own: {
        batch: 600, prompt: 1_500, workers: 3, naming: Naming::PerWorker,
    };
    batches_brought_together_of_clashing_and_moved_names: {
        batch: 600, prompt: 1_500, workers: 3, naming: Naming::Clashing, moves: 8,
    };
    batches_brought_together_tail_first: {
        batch: 600, prompt: 1_500, workers: 3, eviction: Eviction::TailFirst,
    };
    many_branches: { alphabet: 40, prompt: 12 };
    two_contents_only: { alphabet: 2, prompt: 24 };
    names_of_their_own_tail_first: {
        naming: Naming::PerWorker, eviction: Eviction::TailFirst,
    };
    names_of_their_own_any_block: { naming: Naming::PerWorker };
    some_share_names_and_some_do_not: { naming: Naming::Mixed };
    two_names_for_one_place: { naming: Naming::TwoShared };
    two_names_of_their_own_for_one_place: { naming: Naming::TwoPerWorker };
    one_name_for_different_content: { naming: Naming::Clashing };
    a_new_name_with_every_store: { naming: Naming::Fresh };
    moved_names: { moves: 6 };
    moved_names_one_block_at_a_time: { moves: 3, batch: 2, prompt: 12 };
    moved_names_of_their_own: { naming: Naming::PerWorker, moves: 6 };
    moved_names_that_clash: { naming: Naming::Clashing, moves: 4, prompt: 16 };
    moved_second_names: { naming: Naming::TwoShared, moves: 8 };
    clears_leavers_and_malformed_batches: { rare: 30 };
    clears_leavers_and_malformed_batches_among_clashing_names: {
        naming: Naming::Clashing, rare: 30, moves: 10,
    };
}

/// A stream that the harness itself gets wrong would show here, where both
/// sides are the same code.
#[test]
fn the_reference_agrees_with_itself_in_every_mode() {
    for (seed, (name, mode)) in MODES.iter().enumerate() {
        let ops = stream(*mode, seed as u64, 60);
        hold(name, &ops, mode.names_alike(), true, ReferenceIndex::new);
    }
}

//! Inputs of the fuzzer, as streams of events and questions.
//!
//! An input is decoded into the steps that the library's own random tests are
//! made of, so a finding is a list to read, to cut down and to make a test of.

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/common/restarted.rs"]
mod restarted;
// Of these, what makes payloads is not used here.
#[allow(dead_code)]
#[path = "../../tests/common/snapshots.rs"]
mod snapshots;

pub mod decode;
pub mod intake;
mod record;
pub mod setup;
mod snapshot;

pub use record::{RECORD, mutate};
pub use snapshot::check_snapshot;

use common::compare;
use common::stream::Op;
use decode::Decoded;
use restarted::Restarted;
use setup::Setup;

/// Runs the input on the index and the reference. Panics where they differ,
/// with the steps; a panic of the index goes through.
pub fn check(input: &[u8]) {
    let Some(Decoded { setup, ops, alike }) = Decoded::of(input) else { return };
    if let Err(what) = run(&setup, &ops, alike) {
        panic!("{what}\nunder {setup:?}, names alike: {alike}, in:\n{ops:#x?}");
    }
}

/// The same, but what goes wrong is cut down before it is told.
pub fn cut_down(input: &[u8]) {
    let Some(Decoded { setup, ops, alike }) = Decoded::of(input) else { return };
    let what = format!("{setup:?}, names alike: {alike}");
    compare::hold_run(&what, &ops, |ops| run(&setup, ops, alike));
}

fn run(setup: &Setup, ops: &[Op], alike: bool) -> Result<(), String> {
    let (prompt, reference) = (setup.is_prompt(), setup.reference());
    if setup.restart_every == 0 {
        let start = (setup.limited().build(), reference);
        return compare::run_from(ops, alike, prompt, start, || setup.builder().build());
    }
    let start = Restarted::new(setup.limited(), setup.restart_every, 0);
    let empty = || Restarted::new(setup.builder(), setup.restart_every, 0);
    compare::run_from(ops, alike, prompt, (start, reference), empty)
}

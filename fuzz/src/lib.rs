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
use decode::Decoded;
use restarted::Restarted;

/// Runs the input on the index and the reference. Panics where they differ,
/// with the steps; a panic of the index goes through.
pub fn check(input: &[u8]) {
    let Some(Decoded { setup, ops, alike }) = Decoded::of(input) else { return };
    let (prompt, every) = (setup.is_prompt(), setup.restart_every);
    let restarted = || Restarted::new(|| setup.builder(), every, 0);
    let held = match every {
        0 => compare::run(&ops, alike, prompt, || setup.builder().build()),
        _ => compare::run(&ops, alike, prompt, restarted),
    };
    if let Err(what) = held {
        panic!("{what}\nunder {setup:?}, names alike: {alike}, in:\n{ops:#x?}");
    }
}

/// The same, but what goes wrong is cut down before it is told.
pub fn cut_down(input: &[u8]) {
    let Some(Decoded { setup, ops, alike }) = Decoded::of(input) else { return };
    let (prompt, every) = (setup.is_prompt(), setup.restart_every);
    let what = format!("{setup:?}, names alike: {alike}");
    match every {
        0 => compare::hold(&what, &ops, alike, prompt, || setup.builder().build()),
        _ => compare::hold(&what, &ops, alike, prompt, || {
            Restarted::new(|| setup.builder(), every, 0)
        }),
    }
}

//! Inputs of the fuzzer, as streams of events and questions.
//!
//! An input is decoded into the steps that the library's own random tests are
//! made of, so a finding is a list to read, to cut down and to make a test of.

#[path = "../../tests/common/mod.rs"]
mod common;

pub mod decode;
mod record;
pub mod setup;

pub use record::{RECORD, mutate};

use common::compare;
use decode::Decoded;

/// Runs the input on the index and the reference. Panics where they differ,
/// with the steps; a panic of the index goes through.
pub fn check(input: &[u8]) {
    let Some(Decoded { setup, ops, alike }) = Decoded::of(input) else { return };
    if let Err(what) = compare::run(&ops, alike, setup.is_prompt(), || setup.build()) {
        panic!("{what}\nunder {setup:?}, names alike: {alike}, in:\n{ops:#x?}");
    }
}

/// The same, but what goes wrong is cut down before it is told.
pub fn cut_down(input: &[u8]) {
    let Some(Decoded { setup, ops, alike }) = Decoded::of(input) else { return };
    let what = format!("{setup:?}, names alike: {alike}");
    compare::hold(&what, &ops, alike, setup.is_prompt(), || setup.build());
}

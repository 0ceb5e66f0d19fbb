//! Payloads as they might come off the wire, into two indexes.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| kvradix_fuzz::intake::check(input));

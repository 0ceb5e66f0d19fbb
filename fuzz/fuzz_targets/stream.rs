//! Streams of events and questions, held to `ReferenceIndex`.

#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|input: &[u8]| kvradix_fuzz::check(input));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    kvradix_fuzz::mutate(data, size, max_size, seed, fuzzer_mutate)
});

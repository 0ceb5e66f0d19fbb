//! Files that may be no snapshots.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    kvradix_fuzz::check_snapshot(input);
});

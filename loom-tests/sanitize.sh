#!/bin/sh
# ThreadSanitizer on threads/, with a nightly toolchain; the argument is the
# number of rounds. Not part of .ci/run.
#
# What it does not cover, since the std of a toolchain is not instrumented and
# races would be reported that are none:
# - std's locks and scoped threads: the program has none of them;
# - rayon, so the pool, its alarm and a flush beside them (drain_threads is 0
#   here, callers drain): for those there are the models and tests/pool.rs;
# - what an Arc's last drop frees (suppressions.txt): nodes, hubs and lanes.
#   Views, columns and hubs' arrays are freed without one, and are watched.
cd "$(dirname "$0")/threads" || exit 1
target=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
export TSAN_OPTIONS="exitcode=66 suppressions=suppressions.txt"
cargo +nightly build --release --quiet --target "$target" --target-dir ../target/sanitize || exit 1
run=../target/sanitize/$target/release/kvradix-threads

# The control: a planted race has to be reported.
said=$("$run" --planted 2>&1)
if [ $? -ne 66 ] || ! echo "$said" | grep -q 'WARNING: ThreadSanitizer: data race'; then
    echo "the planted race was not reported: nothing would be proved"
    exit 1
fi
echo "planted race: reported, as it must be"
exec "$run" "$@"

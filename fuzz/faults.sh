#!/usr/bin/env bash
# Negative controls: one step of the protocol left out at a time
# (../src/sync/mutant.rs), the fuzzer begins with an empty corpus, and must
# find the fault within so many seconds (60 unless told). Those that show
# only between threads are the models' business (../loom-tests).
set -euo pipefail
cd "$(dirname "$0")"
patience=${1:-60}
faults="HoleUnseen EntryStays ClimbStops NoFlag RetakeWithoutEntry TableLeavesOne
WideLeavesOne FewLeaveOne StoreBeforeDrain"

export RUSTFLAGS="--cfg kvradix_faults ${RUSTFLAGS:-}" CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/faults
cargo fuzz build --sanitizer none --no-trace-compares stream
fuzzer=$(ls "$CARGO_TARGET_DIR"/*/release/stream)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
missed=0
for fault in $faults; do
    mkdir "$work/$fault"
    from=$(date +%s%N)
    if KVRADIX_MUTANT=$fault "$fuzzer" -max_len=2048 -max_total_time="$patience" \
        -artifact_prefix="$work/$fault-" "$work/$fault" >"$work/log" 2>&1; then
        printf '%-20s not found\n' "$fault"
        missed=1
    else
        grep -q panicked "$work/log" || { cat "$work/log"; exit 1; }
        inputs=$(grep -oE '^#[0-9]+' "$work/log" | tail -n 1)
        printf '%-20s found after %5d ms, more than %s inputs\n' "$fault" \
            $((($(date +%s%N) - from) / 1000000)) "${inputs#\#}"
    fi
done
exit $missed

#!/usr/bin/env bash
# Fuzzes for so many seconds (300 unless told) and says what it has seen:
#   ./run.sh [SECONDS] [TARGET]
# A finding is cut down and shown as the steps of a test. ./run.sh 0 replays
# the seeds alone.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-300}
target=${2:-stream}

if ! command -v cargo-fuzz >/dev/null; then
    echo "the fuzzer is driven by cargo-fuzz: cargo install cargo-fuzz" >&2
    exit 1
fi
if [ "$seconds" -eq 0 ]; then
    exec cargo test --release --no-default-features
fi
# The installed stable toolchain does: no sanitizer, and no tracing of
# comparisons, which takes half of the time and finds nothing here.
options=(--sanitizer none --no-trace-compares)
artifacts=artifacts/$target
dictionary=()
[ -f "$target.dict" ] && dictionary=(-dict="$target.dict")
mkdir -p "corpus/$target" "$artifacts"
before=$(ls "$artifacts")
if cargo fuzz run "${options[@]}" "$target" "corpus/$target" "seeds/$target" -- \
    "${dictionary[@]}" -max_len=2048 -timeout=30 -max_total_time="$seconds" -print_final_stats=1; then
    exit
fi
found=$(comm -13 <(printf '%s\n' "$before") <(ls "$artifacts") | head -n 1)
[ -n "$found" ] || exit 1
# First bytes go, then whole steps and parts of steps.
cargo fuzz tmin "${options[@]}" --runs 2000 "$target" "$artifacts/$found" || true
smallest=$(ls -t "$artifacts" | head -n 1)
echo "the smallest input found: $artifacts/$smallest"
if [ "$target" = stream ]; then
    cargo run --quiet --release --no-default-features --example show -- "$artifacts/$smallest" || true
fi
exit 1

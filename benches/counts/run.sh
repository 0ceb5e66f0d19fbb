#!/usr/bin/env bash
# Counts the instructions of the hot paths under callgrind; run a second time,
# it says how they changed since the first. Needs valgrind; installs the
# runner that the benchmark's library asks for.
#
#   ./run.sh                       count, compare with the last count
#   ./run.sh --save-baseline=main  keep this count under a name
#   ./run.sh --baseline=main       compare with that
set -euo pipefail
cd "$(dirname "$0")"

command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 1; }
version=$(sed -nE 's/^gungraun = "=(.*)"/\1/p' Cargo.toml)
runner=${CARGO_TARGET_DIR:-target}/runner
if ! "$runner/bin/gungraun-runner" --version 2>/dev/null | grep -q "$version"; then
    cargo install --quiet --version "$version" --root "$runner" gungraun-runner
fi
GUNGRAUN_RUNNER=$(realpath "$runner/bin/gungraun-runner") cargo bench --bench hot_paths -- "$@"

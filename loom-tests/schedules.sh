#!/bin/sh
# Random schedules of more threads than the models have: the number of them,
# then the seed (both optional).
cd "$(dirname "$0")" || exit 1
export RUSTFLAGS="--cfg kvradix_loom --cfg kvradix_shuttle"
exec cargo test --release --quiet --target-dir target/shuttle --test schedules -- "$@"

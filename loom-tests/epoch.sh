#!/bin/sh
# Runs the models of two threads that use the real collector, built on loom.
cd "$(dirname "$0")" || exit 1
export RUSTFLAGS="--cfg kvradix_loom --cfg kvradix_loom_epoch --cfg crossbeam_loom"
exec cargo test --release --quiet --target-dir target/epoch --test models -- "$@"

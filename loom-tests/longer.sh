#!/bin/sh
# The longer set: every bounded model with one more preemption.
cd "$(dirname "$0")" || exit 1
export KVRADIX_BOUND="${KVRADIX_BOUND:-+1}" KVRADIX_PATIENCE="${KVRADIX_PATIENCE:-3600}"
exec cargo test --release --quiet --test models -- "$@"

#!/bin/sh
# Runs every negative control and writes MUTANTS.md.
cd "$(dirname "$0")" && exec cargo test --release --quiet --test models -- --mutants "$@"

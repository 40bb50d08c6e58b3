#!/bin/sh
# Compiles the crates of the workspace for libFuzzer (`RUSTC_WORKSPACE_WRAPPER`), with counters at
# each branch and comparison. The flags are those of cargo-fuzz. Dependencies are compiled without
# the flags, so the files that the tests compiled are used.
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0

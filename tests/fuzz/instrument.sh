#!/bin/sh
# Compiles the workspace's crates for libFuzzer (`RUSTC_WORKSPACE_WRAPPER`): with counters at each branch and comparison, the
# flags that cargo-fuzz gives. What they depend on is compiled as for the tests, and so is not compiled again.
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0

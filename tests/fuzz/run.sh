#!/bin/sh
# Builds the fuzz targets and runs each with libFuzzer for REMOOR_FUZZ_SECONDS (60), two at a time.
#
#   tests/fuzz/run.sh [TARGET..]    without arguments: all targets
#
# New inputs are kept below target/fuzz, and the next run begins with them. An input that makes a
# target fail is kept there too; the output names the file and the command that runs it again. `make
# test` does not use libFuzzer: it calls the targets with the seeds and with a few hundred mutated
# inputs (tests/it/fuzzed.rs).
set -eu
cd "$(dirname "$0")/../.."

seconds=${REMOOR_FUZZ_SECONDS:-60}
cargo=${CARGO:-cargo}
out=${CARGO_TARGET_DIR:-target}/fuzz
mkdir -p "$out"
out=$(cd "$out" && pwd)
program=${CARGO_TARGET_DIR:-target}/debug/remoor-fuzz

run() {
    target=$1
    # Directories with additional inputs of this target.
    others=$(sed -n "s/^$target *//p" tests/fuzz/inputs.txt)
    mkdir -p "$out/corpus/$target"
    log=$out/$target.log
    export REMOOR_FUZZ_TARGET="$target"
    # libFuzzer writes new inputs to the first directory, and only reads the other directories.
    if "$program" "$out/corpus/$target" "tests/fuzz/seeds/$target" $others -seed=1 -max_total_time="$seconds" -max_len=8192 \
        -rss_limit_mb=1024 -timeout=30 -artifact_prefix="$out/$target-" -print_final_stats=1 >"$log" 2>&1; then
        echo "fuzzed $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, no failure"
    else
        tail -n 40 "$log"
        echo "FAIL: fuzz target $target; full log: $log"
        sed -n "s|^.*Test unit written to \(.*\)|  again: REMOOR_FUZZ_TARGET=$target $program \1|p" "$log"
        return 1
    fi
}

if [ "${1:-}" = --one ]; then
    run "$2"
    exit
fi

command -v c++ >/dev/null || {
    echo "FAIL: fuzz targets: libFuzzer needs a C++ compiler; next: install g++" >&2
    exit 1
}

# The usual target directory is used, because the dependencies are the same. Only the crates of the
# workspace are compiled for libFuzzer (instrument.sh). No sanitizer is used, because only one file
# contains unsafe code and it parses nothing. Overflows and debug assertions are detected.
RUSTC_WORKSPACE_WRAPPER=$PWD/tests/fuzz/instrument.sh "$cargo" build --quiet --locked -p remoor-fuzz --bins
[ $# -gt 0 ] || set -- $(sed -n 's/^\([a-z_]*\).*/\1/p' tests/fuzz/inputs.txt | grep .)
printf '%s\n' "$@" | xargs -P 2 -I TARGET tests/fuzz/run.sh --one TARGET

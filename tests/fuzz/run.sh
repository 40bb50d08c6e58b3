#!/bin/sh
# Builds the fuzz targets and runs each by libFuzzer for REMOOR_FUZZ_SECONDS (60), two side by side.
#
#   tests/fuzz/run.sh [TARGET..]    all, if none is named
#
# What is found while it runs is kept below target/fuzz and is where the next run begins. An input that breaks a target is kept
# there too, and named with the command that tries it again. `make test` has no libFuzzer: it calls the targets with the
# seeds and with a few hundred changed inputs (tests/it/fuzzed.rs).
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
    # From inputs.txt: the directories with further inputs of this target.
    others=$(sed -n "s/^$target *//p" tests/fuzz/inputs.txt)
    mkdir -p "$out/corpus/$target"
    log=$out/$target.log
    export REMOOR_FUZZ_TARGET="$target"
    # The first directory takes what is new; the others are read.
    if "$program" "$out/corpus/$target" "tests/fuzz/seeds/$target" $others -seed=1 -max_total_time="$seconds" -max_len=8192 \
        -rss_limit_mb=1024 -timeout=30 -artifact_prefix="$out/$target-" -print_final_stats=1 >"$log" 2>&1; then
        echo "fuzzed $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, no fault"
    else
        tail -n 40 "$log"
        echo "FAIL: fuzz target $target; all of it: $log"
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

# Beside the program's own target directory's crates, which are the same; only the workspace's are compiled for libFuzzer
# (instrument.sh). No sanitizer: there is one unsafe file, and it parses nothing. Overflows and debug assertions are looked for.
RUSTC_WORKSPACE_WRAPPER=$PWD/tests/fuzz/instrument.sh "$cargo" build --quiet --locked -p remoor-fuzz --bins
[ $# -gt 0 ] || set -- $(sed -n 's/^\([a-z_]*\).*/\1/p' tests/fuzz/inputs.txt | grep .)
printf '%s\n' "$@" | xargs -P 2 -I TARGET tests/fuzz/run.sh --one TARGET

#!/bin/sh
# Builds the fuzz targets and runs each for REMOOR_FUZZ_SECONDS (60), two side by side.
#
#   tests/fuzz/run.sh [TARGET..]    all, if none is named
#   tests/fuzz/run.sh --build       builds them, and that is all
#
# What is found while it runs is kept below target/fuzz and is where the next run begins. An input that breaks a target is kept
# there too, and named with the command that tries it again.
set -eu
cd "$(dirname "$0")/../.."

seconds=${REMOOR_FUZZ_SECONDS:-60}
cargo=${CARGO:-cargo}
out=${CARGO_TARGET_DIR:-target}/fuzz
mkdir -p "$out"
out=$(cd "$out" && pwd)

run() {
    bin=$1
    target=$2
    case $target in
    check_file) others="checks tests/goss/matching tests/fleets/loopback/checks" ;;
    inventory) others="tests/fleets/five tests/fleets/loopback" ;;
    playbook) others="playbooks" ;;
    *) others="" ;;
    esac
    mkdir -p "$out/corpus/$target"
    log=$out/$target.log
    # The first directory takes what is new; the others are read.
    if "$bin/$target" "$out/corpus/$target" "tests/fuzz/seeds/$target" $others -seed=1 -max_total_time="$seconds" -max_len=8192 \
        -rss_limit_mb=1024 -timeout=30 -artifact_prefix="$out/$target-" -print_final_stats=1 >"$log" 2>&1; then
        echo "fuzzed $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, no fault"
    else
        tail -n 40 "$log"
        echo "FAIL: fuzz target $target; all of it: $log"
        sed -n "s|^.*Test unit written to \(.*\)|  again: $bin/$target \1|p" "$log"
        return 1
    fi
}

if [ "${1:-}" = --one ]; then
    run "$2" "$3"
    exit
fi

# Also where REMOOR_LAB_REQUIRED is set: that is about the hosts, and what the network does not give here says nothing of them.
skip() {
    echo "SKIPPED: FUZZ TARGETS: $1" >&2
    exit 0
}

command -v c++ >/dev/null || skip "there is no C++ compiler for libFuzzer (g++)"

# Beside the program's own target directory's crates, which are the same; only the workspace's are compiled for libFuzzer
# (instrument.sh). No sanitizer: there is one unsafe file, and it parses nothing. Overflows and debug assertions are looked for.
bin=${CARGO_TARGET_DIR:-target}/debug
RUSTC_WORKSPACE_WRAPPER=$PWD/tests/fuzz/instrument.sh "$cargo" build --quiet --locked -p remoor-fuzz --bins
[ "${1:-}" != --build ] || exit 0
[ $# -gt 0 ] || set -- check_file go_template digest gossip_meta inventory playbook template
printf '%s\n' "$@" | xargs -P 2 -I TARGET tests/fuzz/run.sh --one "$bin" TARGET

#!/bin/sh
# Builds target/tools/remoor-previous: the program of the given commit, for the test of two versions
# in one cluster (tests/it/versions.rs). If the program can't be built, the test is skipped, and the
# reason is printed in capitals.
set -eu
cd "$(dirname "$0")/.."
commit=$1
mkdir -p "${CARGO_TARGET_DIR:-target}/tools"
program=$(cd "${CARGO_TARGET_DIR:-target}/tools" && pwd)/remoor-previous

say() { echo "remoor: $*" >&2; }
clear_away() { rm -rf "$program.tar" "$program.src" "$program.build"; }
skip() {
    clear_away
    rm -f "$program" "$program.commit"
    say "SKIPPED: TWO VERSIONS IN ONE CLUSTER: $*"
    exit 0
}

[ ! -x "$program" ] || [ "$(cat "$program.commit" 2>/dev/null)" != "$commit" ] || exit 0
git cat-file -e "$commit^{commit}" 2>/dev/null ||
    skip "the local git history does not contain commit $commit; next: git fetch --unshallow"
say "building the program of commit $commit for the test of two versions in one cluster; takes minutes, only once"
clear_away
mkdir "$program.src"
git archive --output "$program.tar" "$commit"
tar -C "$program.src" -xf "$program.tar"
# The build uses a separate target directory. In the usual directory, cargo treats both packages as
# the same, distinguishes them by the age of the files, and may return the wrong program. Compiled
# dependencies are copied from the usual directory. The example is built too, so that the features
# are the same.
built=${CARGO_TARGET_DIR:-target}/debug
mkdir -p "$program.build/debug/deps"
if [ -d "$built/deps" ]; then
    cp -a "$built/build" "$built/.fingerprint" "$program.build/debug/"
    rm -rf "$program.build"/debug/.fingerprint/remoor-* "$program.build"/debug/.fingerprint/base2histogram-*
    # Only libraries are copied. The fuzz targets may be compiled in that directory at the same
    # time, but a library has its name only after it is complete.
    find "$built/deps" -maxdepth 1 -type f ! -name '*remoor*' ! -name '*base2histogram*' ! -name 'it-*' \
        \( -name 'lib*' -o -name '*.so' -o -name '*.d' \) -exec cp -a -t "$program.build/debug/deps" {} +
fi
CARGO_INCREMENTAL=0 "${CARGO:-cargo}" build --quiet --locked --bin remoor --example contiv-standin \
    --manifest-path "$program.src/Cargo.toml" --target-dir "$program.build" || skip "commit $commit cannot be built on this machine"
mv "$program.build/debug/remoor" "$program"
echo "$commit" >"$program.commit"
clear_away

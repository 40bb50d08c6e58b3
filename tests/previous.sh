#!/bin/sh
# Makes target/tools/remoor-previous: the program of the commit that is named, for the test of two versions in one cluster
# (tests/it/versions.rs). Where it can't be made that test is skipped, and it says in capitals why.
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
    skip "commit $commit is not in the history that is here; next: git fetch --unshallow"
say "building the program of commit $commit, for the test of two versions in one cluster; minutes, once"
clear_away
mkdir "$program.src"
git archive --output "$program.tar" "$commit"
tar -C "$program.src" -xf "$program.tar"
# In a target directory of its own: in this one cargo takes the package for the same, tells the two by the age of the files, and
# may hand out the other's program.
CARGO_PROFILE_DEV_DEBUG=0 "${CARGO:-cargo}" build --quiet --locked --bin remoor --manifest-path "$program.src/Cargo.toml" \
    --target-dir "$program.build" || skip "commit $commit can't be built here"
mv "$program.build/debug/remoor" "$program"
echo "$commit" >"$program.commit"
clear_away

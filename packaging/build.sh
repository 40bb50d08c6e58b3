#!/bin/sh
# Builds the Debian package and the RPM package of this commit, with their checksums. Two builds of
# one commit by one toolchain are meant to give the same bytes: files have the time of the commit,
# and the program contains no path of the machine.
#
# usage: packaging/build.sh [--output DIR] [--program FILE] [--revision N]
#   --output DIR    directory of the packages (default target/packages)
#   --program FILE  packs this program instead of a release build, with little compression; tests
#                   use a debug build, whose size makes the usual compression slow
#   --revision N    number of the package for the same version of remoor (default 1)
set -eu
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$target/packages program="" revision=1 deb="" rpm=zstd
while [ $# -gt 0 ]; do
    case $1 in
    --output) out=$(realpath -m "$2") && shift 2 ;;
    --program) program=$(realpath "$2") deb=--fast rpm=gzip && shift 2 ;;
    --revision) revision=$2 && shift 2 ;;
    *) echo "usage: packaging/build.sh [--output DIR] [--program FILE] [--revision N]" >&2 && exit 2 ;;
    esac
done
packaging/tools.sh

# The time of all files in the packages is that of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
if [ -z "$program" ]; then
    # `--version` names the commit. Panics name source files without the directories of this machine.
    REMOOR_COMMIT=$(git describe --always --dirty --abbrev=12 --exclude '*')
    REMOOR_COMMIT_DATE=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%d)
    RUSTFLAGS="--remap-path-prefix=$PWD=/remoor --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
    export REMOOR_COMMIT REMOOR_COMMIT_DATE RUSTFLAGS
    cargo build --quiet --release --bins --target-dir "$target/packaged"
    program=$target/packaged/release/remoor
fi

# Both tools look for programs and for generated files below the directory `release` of their target
# directory.
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$out" "$stage/release/completions"
strip --strip-all -o "$stage/release/remoor" "$program"
remoor=$stage/release/remoor
"$remoor" man "$stage/release/man" >/dev/null
gzip -9n "$stage/release/man/"*
for shell in bash zsh fish; do
    "$remoor" completions $shell >"$stage/release/completions/remoor.$shell"
done

rm -f "$out/"remoor_*.deb "$out/"remoor-*.rpm
CARGO_TARGET_DIR=$stage cargo deb --quiet --no-build --no-strip $deb --deb-revision "$revision" --output "$out/"
cargo generate-rpm --target-dir "$stage" --set-metadata "release = \"$revision\"" --source-date "$SOURCE_DATE_EPOCH" \
    --payload-compress $rpm --auto-req builtin --output "$out/"
(cd "$out" && sha256sum -- remoor_*.deb remoor-*.rpm | tee SHA256SUMS)

#!/bin/sh
# Installs the programs that build packages, as far as they are missing: cargo-deb and
# cargo-generate-rpm.
set -eu
for tool in cargo-deb cargo-generate-rpm; do
    command -v $tool >/dev/null && continue
    echo "remoor: installing $tool with cargo" >&2
    cargo install --quiet --locked $tool
done

#!/bin/sh
# Installs the programs that build packages, as far as they are missing. Other versions could give
# packages with other bytes.
set -eu
for tool in cargo-deb@3.8.0 cargo-generate-rpm@0.21.1; do
    command -v "${tool%@*}" >/dev/null && continue
    echo "remoor: installing $tool with cargo" >&2
    cargo install --quiet --locked "$tool"
done

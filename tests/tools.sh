#!/bin/sh
# Installs what the host tests and the demo need and this machine lacks, by its own package manager, saying so first.
# Nothing is installed without root or sudo: the tests then say in capitals what they skip.
set -eu

missing=""
need() { # program package
    command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ] || missing="$missing $2"
}
need cc gcc
need systemd-nspawn systemd-container
need nft nftables
need mmdebstrap mmdebstrap
need ip iproute2
need ssh openssh-client
need nsenter util-linux
need setpriv util-linux
need sshd openssh-server

[ -n "$missing" ] || exit 0
missing=$(echo "$missing" | tr ' ' '\n' | sort -u | xargs)
if ! command -v apt-get >/dev/null 2>&1; then
    echo "remoor: this machine lacks: $missing (install them with its package manager)" >&2
    exit 0
fi
if [ "$(id -u)" = 0 ]; then as_root=""
elif sudo -n true 2>/dev/null; then as_root="sudo -n"
elif [ -t 0 ] && command -v sudo >/dev/null 2>&1; then as_root="sudo"
else
    echo "remoor: neither root nor sudo, so these are not installed: $missing" >&2
    exit 0
fi
echo "remoor: installing with apt-get: $missing"
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null

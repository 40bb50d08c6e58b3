#!/bin/sh
# Puts a Debian package and all its dependencies into a directory without installing them: debs.sh
# DIRECTORY PACKAGE.
set -eu
dir=$1 package=$2
if ! apt-cache show "$package" >/dev/null 2>&1; then
    [ "$(id -u)" = 0 ] || { echo "apt does not know it; next: apt-get update, as root" >&2; exit 1; }
    apt-get update -qq
fi
rm -rf "$dir.new"
mkdir -p "$dir.new/debs"
cd "$dir.new/debs"
# The packages: all dependencies that an installation would add, and the package itself even if it
# is installed.
wanted=$(apt-get install --reinstall --print-uris -qq --no-install-recommends "$package" | awk '{print $2}' | sed 's/_.*//')
apt-get download -qq -o APT::Sandbox::User=root $wanted
for file in *.deb; do
    dpkg-deb -x "$file" "$dir.new"
done
cd "$dir.new"
rm -rf debs
mv "$dir.new" "$dir"

#!/bin/sh
# Makes a signed repository for apt from Debian packages of `packaging/build.sh`. Serve the directory
# with any web server. A machine that uses it needs two files:
#
#   /usr/share/keyrings/remoor.gpg         the file remoor.gpg of the directory
#   /etc/apt/sources.list.d/remoor.list    deb [signed-by=/usr/share/keyrings/remoor.gpg] URL ./
#
# usage: packaging/repository.sh KEY PACKAGES DIR
#   KEY       fingerprint or address of a secret key in the keyring of gpg
#   PACKAGES  directory with the packages, for example target/packages
set -eu
[ $# = 3 ] || { echo "usage: packaging/repository.sh KEY PACKAGES DIR" >&2 && exit 2; }
packages=$2 dir=$3
for program in apt-ftparchive gpg; do
    command -v $program >/dev/null || { echo "$program is missing; next: apt-get install apt-utils gnupg" >&2 && exit 1; }
done
# An address may name several public keys, also of strangers. Only one secret key must be left.
key=$(gpg --batch --with-colons --list-secret-keys -- "$1" | awk -F: '/^sec/ { take = 1 } /^fpr/ && take { print $10; take = 0 }')
[ "$(echo "$key" | wc -w)" = 1 ] || { echo "$1 names not exactly one secret key; next: give its fingerprint" >&2 && exit 1; }
mkdir -p "$dir"
cp "$packages"/*.deb "$dir/"
cd "$dir"
apt-ftparchive packages . >Packages
gzip --keep --force -9n Packages
rm -f Release InRelease
apt-ftparchive -o APT::FTPArchive::Release::Origin=remoor release . >Release.new
mv Release.new Release
gpg --batch --yes --local-user "$key" --clearsign --output InRelease Release
gpg --batch --yes --output remoor.gpg --export "$key"
echo "a signed repository is in $dir"

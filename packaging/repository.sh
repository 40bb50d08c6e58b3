#!/bin/sh
# Makes a signed repository for apt from the Debian packages in target/packages. Serve the directory
# with any web server. A machine that uses it needs two files:
#
#   /usr/share/keyrings/remoor.gpg         the file remoor.gpg of the directory
#   /etc/apt/sources.list.d/remoor.list    deb [signed-by=/usr/share/keyrings/remoor.gpg] URL ./
#
# usage: packaging/repository.sh KEY DIR
#   KEY  fingerprint or address of a secret key in the keyring of gpg
set -eu
[ $# = 2 ] || { echo "usage: packaging/repository.sh KEY DIR" >&2 && exit 2; }
key=$1 dir=$2
packages=$(realpath -m "${CARGO_TARGET_DIR:-$(dirname "$0")/../target}")/packages
for program in apt-ftparchive gpg; do
    command -v $program >/dev/null || { echo "$program is missing; next: apt-get install apt-utils gnupg" >&2 && exit 1; }
done
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

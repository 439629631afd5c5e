#!/bin/sh
# Debian packages of this tree: make_deb.sh FOLDER. They are made in a folder of links to the tree's, so that what Debian's tools
# write stays out of it; version and date of their changelog are those of include/dgemma.h and of the last commit.
# From the environment: SOURCE_DATE_EPOCH, DEBFULLNAME, DEBEMAIL; CFG: package this configuration as it is built.
set -eu

out=$1
version=$(sed -n 's/^.define DGEMMA_VERSION "\(.*\)"/\1/p' include/dgemma.h)
# A tarball has the commit's time on every file.
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y include/dgemma.h)}"
maintainer="${DEBFULLNAME:-the authors of dgemma} <${DEBEMAIL:-dgemma@packages.invalid}>"

mkdir -p build "$out"
work=$out/dgemma-$version
rm -rf "$work" "$out"/*.deb "$out"/*.buildinfo "$out"/*.changes
mkdir -p "$work"
for entry in *; do
    if [ -d "$entry" ]; then ln -s "$PWD/$entry" "$work/$entry"; else cp "$entry" "$work/$entry"; fi
done
cp -r packaging/debian "$work/debian"
sed "s/@MAINTAINER@/$maintainer/" packaging/debian/control >"$work/debian/control"
cat >"$work/debian/changelog" <<END
dgemma ($version) unstable; urgency=medium

  * What is new in this version is in /usr/share/doc/dgemma/changelog.gz.

 -- $maintainer  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
END

cd "$work"
dpkg-buildpackage --build=binary --no-pre-clean --unsigned-source --unsigned-changes >../build.log 2>&1 || {
    tail -n 40 ../build.log >&2
    exit 1
}
cd ..
rm -rf "dgemma-$version"
ls ./*.deb

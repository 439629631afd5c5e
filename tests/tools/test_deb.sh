#!/bin/sh
# The Debian packages of what is built here: they are made, and each file is in the one it belongs to. `make test-deb` installs them.
# From the environment: BUILD, CC, SAN.
. tests/support/shell_test.sh

why=
[ -z "${SAN:-}" ] || why="sanitized builds are not for installing"
command -v dh >/dev/null && command -v dpkg-buildpackage >/dev/null || why="there is no debhelper (sh tools/deps.sh deb)"
[ -n "$why" ] || (cd packaging && dpkg-checkbuilddeps debian/control 2>"$temp/missing") || why=$(cat "$temp/missing")
if [ -n "$why" ]; then
    skip "Debian packages" "$why"
    finish
fi

# Everything as it is, without compiling it once more with Debian's flags.
make_packages() { env CFG="${BUILD#build/}" DEB_BUILD_OPTIONS=noautodbgsym DPKG_DEB_COMPRESSOR_TYPE=none sh tools/make_deb.sh "$temp/packages"; }
list() { dpkg-deb --contents "$temp/packages/$1"_*.deb | sed 's/.* \.\(\/[^ ]*\).*/\1/' | grep -v '/$' | sort; }
# has PACKAGE PATTERN...: a file for each
has() {
    list "$1" >"$temp/list"
    shift
    for pattern in "$@"; do grep -qx -- "$pattern" "$temp/list" || { echo "no $pattern in:"; cat "$temp/list"; return 1; }; done
}
field() { dpkg-deb --field "$temp/packages/$1"_*.deb "$2"; }
says() { field "$1" "$2" | grep -q -- "$3" || { field "$1" "$2"; return 1; }; }
version=$(sed -n 's/^.define DGEMMA_VERSION "\(.*\)"/\1/p' include/dgemma.h)
lib=/usr/lib/[a-z0-9_-]*

cp "$BUILD/flags" "$temp/flags"
check "packages are made" make_packages
check "of what was built before" cmp "$BUILD/flags" "$temp/flags"
check "the program" has dgemma /usr/bin/dgemma /usr/share/man/man1/dgemma.1.gz /usr/share/bash-completion/completions/dgemma \
    /usr/share/zsh/vendor-completions/_dgemma /usr/share/fish/vendor_completions.d/dgemma.fish /usr/share/doc/dgemma/copyright
check "the service" has dgemma-server '\(/usr\)\?/lib/systemd/system/dgemma.service' '\(/usr\)\?/lib/systemd/system/dgemma.socket' /usr/lib/sysusers.d/dgemma.conf /etc/default/dgemma
check "the pocket model" has dgemma-pocket /usr/share/dgemma/pocket.gguf /usr/share/dgemma/mmproj-pocket.gguf /usr/share/dgemma/pocket.reference.json
check "the library" has libdgemma0 "$lib/libdgemma.so.${version%%.*}" "$lib/libdgemma.so.$version"
check "its headers" has libdgemma-dev /usr/include/dgemma.h "$lib/libdgemma.a" "$lib/libdgemma.so" "$lib/pkgconfig/dgemma.pc"
check "the version is the library's" eval '[ "$(field dgemma Version)" = "$version" ]'
check "libraries that are needed are named" eval 'says dgemma Depends "libgnutls30.* (>= " && says libdgemma0 Depends "libjansson4 (>= "'
check "those that are loaded later are suggested" eval 'says dgemma Suggests "libcurl.*4" && says libdgemma0 Suggests libavcodec'
no_links_out() { ! dpkg-deb --contents "$temp/packages/$1"_*.deb | grep -F -- "-> /"; }
check "no link leads to this machine" eval 'no_links_out dgemma && no_links_out libdgemma0 && no_links_out libdgemma-dev && no_links_out dgemma-pocket'
check "the tree is as it was" eval '[ ! -e debian ] && [ ! -e packaging/debian/changelog ]'
finish

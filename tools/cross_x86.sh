#!/bin/sh
# Builds dgemma for x86-64 on another machine and tests there what must not depend on the processor:
# the kernels against their recorded bits, our functions of real numbers, the answers of seeds.
#
#   cross_x86.sh [SUITE...]     unit test suites, or SUITE:CASE; those of the numbers without
#
# Needs Debian's apt-get, gcc-x86-64-linux-gnu and qemu-user. The libraries for amd64 are unpacked
# into build/x86-root and nothing is installed. From the environment: CC_X86, JOBS.
set -eu
cd "$(dirname "$0")/.."

root=$PWD/build/x86-root
apt=$PWD/build/x86-apt
: "${CC_X86:=x86_64-linux-gnu-gcc}"
: "${JOBS:=$(nproc)}"
packages="libc6-dev libjansson-dev libpng-dev libjpeg-dev libwebp-dev libgif-dev libedit-dev
    libxxhash-dev libgnutls28-dev check"

need() {
    command -v "$1" >/dev/null 2>&1 || { echo "cross_x86.sh: $1 is missing; Debian has it in $2" >&2; exit 1; }
}
need "${CC_X86%% *}" gcc-x86-64-linux-gnu
need qemu-x86_64 qemu-user
need apt-get apt
need dpkg dpkg

# apt-get of its own: another architecture, no package there yet, everything below $apt.
amd64() {
    apt-get -q -q -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Sandbox::User= \
        -o APT::Install-Recommends=false -o Debug::NoLocking=1 -o Dir::State="$apt/state" \
        -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" "$@"
}

# Links from / would lead out of the root.
bring_links_home() {
    find "$1" -type l -lname '/*' | while read -r link; do
        target=$(readlink "$link")
        ln -sfn "$(realpath -m --relative-to="$(dirname "$link")" "$1$target")" "$link"
    done
}

unpack() {
    rm -rf "$root" "$apt" "$root.new"
    mkdir -p "$root.new" "$apt/state/lists/partial" "$apt/cache/archives/partial"
    : >"$apt/status"
    amd64 update
    # shellcheck disable=SC2086 # packages are words
    amd64 -y -d install $packages
    for deb in "$apt"/cache/archives/*.deb; do
        dpkg -x "$deb" "$root.new"
    done
    rm -rf "$apt"
    bring_links_home "$root.new"
    mv "$root.new" "$root"
}
[ -d "$root" ] || unpack

PKG_CONFIG_SYSROOT_DIR=$root
PKG_CONFIG_LIBDIR=$root/usr/lib/x86_64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig
export PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR
make -s -j"$JOBS" CC="$CC_X86 --sysroot=$root" CFG=x86 FFMPEG=no CURL=no \
    build/x86/check_kernels build/x86/unit_tests

# An emulated processor is tens of times slower. `max` has AVX2 and FMA.
CK_TIMEOUT_MULTIPLIER=40
export CK_TIMEOUT_MULTIPLIER
emulated() { qemu-x86_64 -cpu max -L "$root" "$@"; }

status=0
emulated build/x86/check_kernels || status=1
[ $# -gt 0 ] || set -- real known_answers
for suite in "$@"; do
    case $suite in
    *:*) emulated build/x86/unit_tests "${suite%%:*}" "${suite#*:}" || status=1 ;;
    *) emulated build/x86/unit_tests "$suite" || status=1 ;;
    esac
done
exit $status

#!/bin/sh
# Builds dgemma for the other architecture, x86-64 or aarch64, and tests on an emulated processor what
# must not depend on it: the kernels against their recorded bits, golden traces with each instruction
# set, our functions of real numbers, the answers of seeds.
#
#   cross_test.sh [SUITE...]    unit test suites, or SUITE:CASE; those of the numbers without
#
# Needs Debian's apt-get, a compiler for that architecture and qemu-user. Its libraries are unpacked
# into build/cross-root and nothing is installed. From the environment: CROSS_CC, JOBS.
set -eu
cd "$(dirname "$0")/.."

case $(uname -m) in
x86_64) arch=arm64 machine=aarch64 compiler=gcc-aarch64-linux-gnu sets="neon i8mm bf16" ;;
*) arch=amd64 machine=x86_64 compiler=gcc-x86-64-linux-gnu sets=avx2 ;; # the emulator knows no more
esac
triple=$machine-linux-gnu
root=$PWD/build/cross-root
apt=$PWD/build/cross-apt
: "${CROSS_CC:=$triple-gcc}"
: "${JOBS:=$(nproc)}"
packages="libc6-dev libjansson-dev libpng-dev libjpeg-dev libwebp-dev libgif-dev libedit-dev
    libxxhash-dev libgnutls28-dev libsqlite3-dev check"

need() {
    command -v "$1" >/dev/null 2>&1 || { echo "cross_test.sh: $1 is missing; Debian has it in $2" >&2; exit 1; }
}
need "${CROSS_CC%% *}" "$compiler"
need "qemu-$machine" qemu-user
need apt-get apt
need dpkg dpkg

# apt-get of its own: another architecture, no package there yet, everything below $apt.
get() {
    apt-get -q -q -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o APT::Sandbox::User= \
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
    get update
    # shellcheck disable=SC2086 # packages are words
    get -y -d install $packages
    for deb in "$apt"/cache/archives/*.deb; do
        dpkg -x "$deb" "$root.new"
    done
    rm -rf "$apt"
    bring_links_home "$root.new"
    mv "$root.new" "$root"
}
[ -d "$root" ] || unpack

PKG_CONFIG_SYSROOT_DIR=$root
PKG_CONFIG_LIBDIR=$root/usr/lib/$triple/pkgconfig:$root/usr/share/pkgconfig
export PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR
make -s -j"$JOBS" CC="$CROSS_CC --sysroot=$root" CFG=cross CUDA=0 FFMPEG=no CURL=no \
    build/cross/check_kernels build/cross/dgemma-golden build/cross/unit_tests

# An emulated processor is tens of times slower. `max` has AVX2 and FMA, or all that our kernels for
# aarch64 ask for.
CK_TIMEOUT_MULTIPLIER=40
export CK_TIMEOUT_MULTIPLIER
emulated() { "qemu-$machine" -cpu max -L "$root" "$@"; }

status=0
emulated build/cross/check_kernels || status=1
for set in $sets; do
    echo "golden traces with $set"
    emulated build/cross/dgemma-golden --cpu-flags "$set" tests/fixtures/golden || status=1
done
[ $# -gt 0 ] || set -- real known_answers
for suite in "$@"; do
    case $suite in
    *:*) emulated build/cross/unit_tests "${suite%%:*}" "${suite#*:}" || status=1 ;;
    *) emulated build/cross/unit_tests "$suite" || status=1 ;;
    esac
done
exit $status

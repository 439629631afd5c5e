#!/bin/sh
# Puts in place what a group of targets needs: deps.sh GROUP...
#
#   build   a C library to build against, pkg-config, jansson, libpng, libjpeg, libwebp, giflib, libedit,
#           xxHash, GnuTLS, SQLite (dgemma builds without it, and then its server keeps nothing)
#   test    Check, Python's Jinja to compare chat templates with, and its venv for a client of the server
#   fuzz    clang with libFuzzer and the sanitizers
#   format  clang-format
#   cross   a compiler for the other architecture, x86-64 or aarch64, and an emulator of it
#   bench   wrk and curl, to put load on the server
#   cxx     a C++ compiler, for the public headers
#   browser Chromium and its driver, for the tests of the server's page; skipped without them
#   proxies nginx and HAProxy, which the server is tested behind, and Prometheus' promtool;
#           skipped without them, and installed for nobody who did not ask: they are services
#   deb     Debian's tools for making packages
#   chroot  mmdebstrap, which makes small systems to try packages in, and lintian, which reads them
#   video   FFmpeg's libraries; dgemma builds without them, and then reads no video
#   links   libcurl; dgemma builds without it, and then its server fetches no pictures
#
# Nothing happens when all is there. Otherwise apt-get installs the missing packages if this user
# may do that; if not, the command that would is printed and the script fails.
set -eu

: "${CC:=cc}"

# CC may be several words: "ccache cc".
# shellcheck disable=SC2086
have_header() { printf '#include <%s>\n' "$1" | $CC -E - >/dev/null 2>&1; }
have_libc()   { have_header pthread.h; }
have_pkg()    { command -v pkg-config >/dev/null 2>&1; }
have_lib()    { have_pkg && pkg-config --exists "$1"; }
have_gif()    { have_header gif_lib.h; }
have_fuzzer() {
    printf 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n ? 0 : 0; }\n' |
        clang -fsanitize=fuzzer,address,undefined -x c -o /dev/null - >/dev/null 2>&1
}
have_jinja()  { python3 -c 'import jinja2.sandbox' >/dev/null 2>&1; }
have_venv()   { python3 -c 'import ensurepip' >/dev/null 2>&1; }
have_browser() {
    command -v chromedriver >/dev/null 2>&1 &&
        { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null 2>&1
}
have_program() { PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null 2>&1; }
have_essential() { have_program dpkg-buildpackage && dpkg-query -W -f '${Status}' build-essential 2>/dev/null | grep -q 'ok installed'; }
have_cxx()    { command -v c++ >/dev/null 2>&1; }

missing=
need() { missing="$missing $1"; }

for group in "$@"; do
    case $group in
    build)
        have_libc || need libc6-dev
        have_pkg || need pkg-config
        have_lib jansson || need libjansson-dev
        have_lib libpng || need libpng-dev
        have_lib libjpeg || need libjpeg-dev
        have_lib "libwebp libwebpdemux" || need libwebp-dev
        have_gif || need libgif-dev
        have_lib libedit || need libedit-dev
        have_lib libxxhash || need libxxhash-dev
        have_lib gnutls || need libgnutls28-dev
        have_lib sqlite3 || need libsqlite3-dev
        ;;
    test)
        have_pkg || need pkg-config
        have_lib check || need check
        have_jinja || need python3-jinja2
        have_venv || need python3-venv
        ;;
    fuzz)
        command -v clang >/dev/null 2>&1 || need clang
        have_fuzzer || need libclang-rt-dev
        ;;
    format) command -v clang-format >/dev/null 2>&1 || need clang-format ;;
    bench)
        command -v wrk >/dev/null 2>&1 || need wrk
        command -v curl >/dev/null 2>&1 || need curl
        ;;
    browser)
        have_browser || need chromium
        have_browser || need chromium-driver
        ;;
    proxies)
        have_program nginx || need nginx-light
        have_program haproxy || need haproxy
        have_program promtool || need prometheus
        ;;
    cross)
        case $(uname -m) in
        x86_64) other=aarch64 ;;
        *) other=x86_64 ;;
        esac
        command -v "$other-linux-gnu-gcc" >/dev/null 2>&1 || need "gcc-$(echo "$other" | tr _ -)-linux-gnu"
        command -v "qemu-$other" >/dev/null 2>&1 || need qemu-user
        ;;
    deb)
        have_essential || need build-essential
        have_program dh || need debhelper
        ;;
    chroot)
        have_program mmdebstrap || need mmdebstrap
        have_program lintian || need lintian
        ;;
    cxx) have_cxx || need g++ ;;
    video)
        have_pkg || need pkg-config
        have_lib libavformat || need libavformat-dev
        have_lib libavcodec || need libavcodec-dev
        have_lib libswscale || need libswscale-dev
        have_lib libavutil || need libavutil-dev
        ;;
    links)
        have_pkg || need pkg-config
        have_lib libcurl || need libcurl4-openssl-dev
        ;;
    *)
        echo "deps.sh: no group is called '$group'" >&2
        exit 2
        ;;
    esac
done
[ -n "$missing" ] || exit 0
# shellcheck disable=SC2086 # packages are words
missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
missing=${missing% }

if ! command -v apt-get >/dev/null 2>&1; then
    echo "dgemma needs these, by their Debian names: $missing" >&2
    echo "There is no apt-get here; please install them with this system's package manager." >&2
    exit 1
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
    if sudo -n true 2>/dev/null; then
        as_root="sudo -n"
    else
        echo "dgemma needs a few packages. Please run this, then make again:" >&2
        echo "    sudo apt-get update && sudo apt-get install -y $missing" >&2
        exit 1
    fi
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

quietly() {
    if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" \
        >"$log" 2>&1 </dev/null; then
        cat "$log" >&2
        return 1
    fi
}

case " $missing " in
*" chromium "*)
    echo "The tests of the page run in Chromium, which is not here: it is installed now, some hundred megabytes."
    echo "Ctrl-C and \`make test BROWSER=0\` do without it."
    ;;
esac
echo "installing $missing"
quietly update || echo "the package lists could not be renewed; trying with the old ones" >&2

# Distributions before 2023 ship the sanitizers with clang itself and have no such package.
case " $missing " in
*" libclang-rt-dev "*)
    if ! apt-cache show libclang-rt-dev >/dev/null 2>&1; then
        missing=$(printf '%s' "$missing" | sed 's/ *libclang-rt-dev//')
    fi
    ;;
esac
# shellcheck disable=SC2086
[ -z "$missing" ] || quietly install -y --no-install-recommends $missing

# For tests that need a system of their own: `. tests/packages/chroot.sh` behind shell_test.sh. What it is made of comes from where this
# system's packages come from.
# shellcheck shell=sh

# Why there can be none, or nothing.
no_chroot() {
    [ "$(id -u)" -eq 0 ] || { echo "only root can"; return; }
    command -v mmdebstrap >/dev/null || { echo "there is no mmdebstrap (sh tools/deps.sh chroot)"; return; }
    unshare --mount true 2>/dev/null || { echo "nothing can be mounted here"; return; }
    [ -e "$base" ] || mkdir -p build/chroot && [ -e "$base" ] || make_base >"$temp/base.log" 2>&1 || { tail -n 3 "$temp/base.log" | tr '\n' ' '; }
}

# The smallest Debian with apt, kept as a tarball; remove it to have a newer one.
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
base=build/chroot/$codename.tar
make_base() {
    apt-config dump | grep '^Acquire::\(http\|https\|Check\|Retries\)' >"$temp/apt.conf"
    # shellcheck disable=SC2046 # files are words
    mmdebstrap --variant=minbase --aptopt="$temp/apt.conf" "$codename" "$base.new.tar" \
        $(ls /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null) && mv "$base.new.tar" "$base"
}

# fresh_root FOLDER: a new system there
fresh_root() {
    mkdir -p "$1" && tar -C "$1" -xf "$base" && cp /etc/resolv.conf /etc/hosts "$1/etc/" &&
        printf '#!/bin/sh\nexit 101\n' >"$1/usr/sbin/policy-rc.d" && chmod +x "$1/usr/sbin/policy-rc.d"
}

# inside ROOT COMMAND...: in that system, as root of it; its mounts end with the command
inside() {
    root=$1
    shift
    unshare --mount --propagation private sh -c '
        mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" || exit
        exec chroot "$0" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
    ' "$root" "$@"
}
install_packages() { inside "$1" apt-get install -y -q --no-install-recommends $2; }

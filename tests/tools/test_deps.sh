#!/bin/sh
# tools/deps.sh when something is missing and may not be installed: it says what, or how, and fails.
. tests/support/shell_test.sh

# A system with the usual small tools, and neither pkg-config nor apt-get.
bin=$temp/bin
mkdir "$bin"
for tool in sh sort tr cat env id mktemp rm sed; do
    ln -s "$(command -v "$tool")" "$bin/$tool"
done
in_bare_system() { env PATH="$bin" CC=no-compiler sh tools/deps.sh "$@"; }

check "all is there" sh tools/deps.sh build test

# With a compiler, and still nothing that could install.
for tool in cc pkg-config; do
    ln -s "$(command -v "$tool")" "$temp/$tool"
done
check "a compiler of several words" env PATH="$temp:$bin" CC="env cc" sh tools/deps.sh build

check "no package manager: the names" fails_saying "libjansson-dev" in_bare_system build
check "each group has its own" fails_saying "names: check pkg-config" in_bare_system test
check "links to pictures" fails_saying "names: libcurl4-openssl-dev pkg-config" in_bare_system links
check "a browser for the page" fails_saying "names: chromium chromium-driver" in_bare_system browser
check "tools for packages" fails_saying "names: build-essential debhelper" in_bare_system deb
check "small systems" fails_saying "names: lintian mmdebstrap" in_bare_system chroot
check "another architecture" fails_saying "names: gcc-x86-64-linux-gnu qemu-user" in_bare_system cross
check "an unknown group" fails_saying "'nonsense'" in_bare_system nonsense

printf '#!/bin/sh\nexit 1\n' >"$bin/apt-get"
printf '#!/bin/sh\necho 1000\n' >"$temp/id"
chmod +x "$bin/apt-get" "$temp/id"
mv "$temp/id" "$bin/id"
check "not root: the command" fails_saying \
    "sudo apt-get update && sudo apt-get install -y libc6-dev libedit-dev libgif-dev libgnutls28-dev libjansson-dev libjpeg-dev libpng-dev libsqlite3-dev libwebp-dev libxxhash-dev pkg-config" \
    in_bare_system build

# As root, with an apt-get that installs anything at once.
for fake in 'id:echo 0' 'apt-get:exit 0' 'apt-cache:exit 0'; do
    printf '#!/bin/sh\n%s\n' "${fake#*:}" >"$bin/${fake%%:*}"
    chmod +x "$bin/${fake%%:*}"
done
says_first() { in_bare_system browser >"$temp/out" 2>&1 && grep -B 9 '^installing' "$temp/out" | grep -q 'BROWSER=0'; }
check "a browser is announced before it is installed" says_first
finish

#!/bin/sh
# `make test-deb`: the Debian packages, installed and run in a system that has nothing else. Root is needed, and
# the registry that this system's packages come from.
. tests/support/shell_test.sh
. tests/packages/chroot.sh

why=$(no_chroot)
if [ -n "$why" ]; then
    skip "packages in a fresh system" "$why"
    finish
fi
packages=build/packages
root=$temp/root

again() {
    mkdir "$temp/first" && cp "$packages"/*.deb "$temp/first/" && sleep 1 && sh tools/make_deb.sh "$packages" || return
    for deb in "$temp"/first/*.deb; do cmp "$deb" "$packages/${deb##*/}" || return; done
}
no_complaint() { lintian --allow-root --fail-on error,warning "$packages"/*.changes; }
check "the same bytes again" again
if command -v lintian >/dev/null; then check "lintian" no_complaint; else skip "lintian" "it is not installed"; fi

check "a fresh system" fresh_root "$root"
check "its package lists" inside "$root" apt-get update -q
mkdir "$root/packages" && cp "$packages"/*.deb "$root/packages/"
inside "$root" apt-get clean
# ours NAME...: installed with what they depend on and no more
ours() { for name in "$@"; do set -- "$@" "/packages/${name}_*.deb"; shift; done; inside "$root" sh -c "apt-get install -y -q --no-install-recommends $*"; }
says() {
    text=$1
    shift
    inside "$root" "$@" >"$temp/said" 2>&1 && grep -qF -- "$text" "$temp/said" || { cat "$temp/said"; return 1; }
}
version=$(sed -n 's/^.define DGEMMA_VERSION "\(.*\)"/\1/p' include/dgemma.h)

check "the program is installed" ours dgemma
check "dgemma --version" says "$version" dgemma --version
check "without a model it says where it looked" fails_saying "/usr/share/dgemma/pocket.gguf" inside "$root" dgemma run Hello
check "the pocket model is installed" ours dgemma-pocket
check "it answers" says Paris dgemma run "What is the capital of France?"
check "it computes what it should" says "pocket.reference.json" dgemma verify
check "man page and completions" inside "$root" ls /usr/share/man/man1/dgemma.1.gz /usr/share/bash-completion/completions/dgemma \
    /usr/share/zsh/vendor-completions/_dgemma /usr/share/fish/vendor_completions.d/dgemma.fish

cat >"$root/packages/three.c" <<'END'
#include <dgemma.h>
#include <stdio.h>
int main(void) { return puts(dgemma_version()) < 0; }
END
check "the library is installed, and a compiler" eval 'ours libdgemma0 libdgemma-dev && install_packages "$root" "gcc libc6-dev pkg-config"'
check "a program of three lines" says "$version" sh -c 'cc /packages/three.c -o /tmp/three $(pkg-config --cflags --libs dgemma) && /tmp/three && rm /tmp/three'
check "and the example" says Paris sh -c 'cc /usr/share/doc/libdgemma-dev/examples/ask.c -o /tmp/ask $(pkg-config --cflags --libs dgemma) &&
    /tmp/ask /usr/share/dgemma/pocket.gguf "What is the capital of France?" && rm /tmp/ask'

check "the service is installed" ours dgemma-server
check "it has a user" says _dgemma getent passwd _dgemma
check "it is enabled" inside "$root" test -e /etc/systemd/system/multi-user.target.wants/dgemma.service
check "systemd's view of it" inside "$root" systemd-analyze verify --man=no dgemma.service
# As the unit starts it, less the sandbox; the port is one that is free.
inside "$root" sh -c '. /etc/default/dgemma; cmd=$(sed -n "s/^ExecStart=//p" /lib/systemd/system/dgemma.service /usr/lib/systemd/system/dgemma.service 2>/dev/null | head -n 1)
    echo $$ >/packages/pid; eval "exec setpriv --reuid _dgemma --regid _dgemma --clear-groups $cmd --port 0"' >"$temp/serve.log" 2>&1 &
server=$!
answers() {
    port=
    for _ in $(seq 100); do
        port=$(sed -n 's|.*http://127.0.0.1:\([0-9]*\).*|\1|p' "$temp/serve.log" | head -n 1)
        [ -z "$port" ] || break
        sleep 0.2
    done
    python3 - "$port" <<'END' || { cat "$temp/serve.log"; return 1; }
import json, sys, time, urllib.error, urllib.request
base = f"http://127.0.0.1:{sys.argv[1]}"
for _ in range(100):
    try:
        urllib.request.urlopen(base + "/health", timeout=10)
        break
    except urllib.error.URLError:
        time.sleep(0.2)
body = json.dumps({"messages": [{"role": "user", "content": "What is the capital of France?"}]}).encode()
answer = json.load(urllib.request.urlopen(urllib.request.Request(base + "/v1/chat/completions", body), timeout=60))
assert "Paris" in answer["choices"][0]["message"]["content"], answer
END
}
check "it answers with the options of its file" answers
stops() { kill "$(cat "$root/packages/pid")" && wait "$server"; }
check "and ends when told to" stops

# What the service kept, and a changed file of options, stay with a removed package, and go with a purged one.
echo '# mine' >>"$root/etc/default/dgemma"
mkdir "$root/var/lib/dgemma" && touch "$root/var/lib/dgemma/kept"
check "removed: options and state stay" eval 'inside "$root" apt-get remove -y -q dgemma-server && grep -q mine "$root/etc/default/dgemma" && ls "$root/var/lib/dgemma/kept"'
check "purged" inside "$root" sh -c 'rm -r /packages; apt-get purge -y -q dgemma dgemma-server dgemma-pocket libdgemma0 libdgemma-dev'
nothing_left() {
    left=$(find "$root" -xdev -name '*dgemma*'; inside "$root" dpkg -l '*dgemma*' 2>/dev/null | grep '^[a-z][a-zU]')
    [ -z "$left" ] || { echo "$left"; return 1; }
}
check "nothing is left" nothing_left
finish

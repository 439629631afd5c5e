#!/bin/sh
# make install puts everything where a user's compiler finds it; make uninstall leaves nothing.
. tests/support/shell_test.sh

if [ -n "${SAN:-}" ]; then
    skip "installing" "sanitized builds are not for installing"
    finish
fi

root=$temp/root
prefix=$root/usr
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
export PKG_CONFIG_SYSROOT_DIR="$root"

cat >"$temp/user.c" <<'END'
#include <dgemma.h>
#include <string.h>
int main(void) { return strcmp(dgemma_version(), DGEMMA_VERSION) != 0; }
END

files() { (cd "$root" && find . ! -type d | sort); }
has() { for f in "$@"; do [ -e "$prefix/$f" ] || { echo "$f is missing"; files; return 1; }; done; }
build_shared() {
    # shellcheck disable=SC2046 # flags are words
    $CC "$temp/user.c" -o "$temp/shared" $(pkg-config --cflags --libs dgemma) &&
        LD_LIBRARY_PATH="$prefix/lib" "$temp/shared"
}
build_static() {
    # The system's libraries are outside the root: the file says which they are.
    pc=$prefix/lib/pkgconfig/dgemma.pc
    # shellcheck disable=SC2046
    $CC "$temp/user.c" -o "$temp/static" -I"$prefix/include" "$prefix/lib/libdgemma.a" \
        $(PKG_CONFIG_SYSROOT_DIR='' pkg-config --libs "$(sed -n 's/^Requires.private: //p' "$pc")") \
        $(sed -n 's/^Libs.private: //p' "$pc") && "$temp/static"
}
# The examples, with nothing but pkg-config, on a fixture.
example() {
    name=$1
    shift
    # shellcheck disable=SC2046
    $CC -std=c17 -Wall -Wextra -Werror "examples/$name.c" -o "$temp/$name" $(pkg-config --cflags --libs dgemma) &&
        LD_LIBRARY_PATH="$prefix/lib" "$temp/$name" "$@" >"$temp/$name.out" && grep -aq tokens "$temp/$name.out"
}
model=tests/fixtures/golden/sampler_finishes/model
says_where() {
    text=$1
    shift
    "$@" >"$temp/where.log" 2>&1 && grep -qF -- "$text" "$temp/where.log"
}
nothing_left() { [ -z "$(files)" ] || { files; return 1; }; }

# The make that runs this test hands its variables down; what is built already is only copied.
check "install" make install PREFIX=/usr DESTDIR="$root"
check "the files are there" has lib/libdgemma.a lib/libdgemma.so include/dgemma.h \
    lib/pkgconfig/dgemma.pc share/man/man1/dgemma.1 include/dgemma_tools.h \
    share/bash-completion/completions/dgemma share/zsh/site-functions/_dgemma \
    share/fish/vendor_completions.d/dgemma.fish ${DGEMMA:+bin/dgemma}
check "a program with the shared library" build_shared
check "a program with the static library" build_static
[ -z "$DGEMMA" ] || check "the program runs" "$prefix/bin/dgemma" --version
if [ -n "$DGEMMA" ] && [ -e models/pocket/pocket.gguf ]; then
    check "the pocket model is installed" has share/dgemma/pocket.gguf share/dgemma/mmproj-pocket.gguf
    check "and found from there" says_where "$prefix/bin/../share/dgemma/pocket.gguf" "$prefix/bin/dgemma" inspect
    check "it computes what it should" says_where "share/dgemma/pocket.reference.json" "$prefix/bin/dgemma" verify
else
    skip "the pocket model is installed" "models/pocket/pocket.gguf is not in this tree"
fi
check "example: ask" example ask "$model" "Why is the sky blue?"
check "example: watch" example watch "$model" "Tell me a story." Once
check "example, no model" fails_saying "No such file" env LD_LIBRARY_PATH="$prefix/lib" "$temp/ask" "$temp/none" x
check "uninstall" make uninstall PREFIX=/usr DESTDIR="$root"
check "nothing is left" nothing_left
finish

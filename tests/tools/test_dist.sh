#!/bin/sh
# make dist: the same bytes twice, and nothing that was not committed.
. tests/support/shell_test.sh

if ! git rev-parse HEAD >/dev/null 2>&1; then
    skip "a tarball" "this is no repository of git"
    finish
fi
version=$(sed -n 's/^.define DGEMMA_VERSION "\(.*\)"/\1/p' include/dgemma.h)
tarball=build/dgemma-$version.tar.gz
twice() {
    make --no-print-directory dist && mv "$tarball" "$temp/first" && sleep 1 && make --no-print-directory dist && cmp "$tarball" "$temp/first"
}
check "make dist gives the same bytes each time" twice
tar -tzf "$temp/first" >"$temp/list"
has() { grep -qx "dgemma-$version/$1" "$temp/list"; }
check "source, model and package are in it" eval 'has Makefile && has include/dgemma.h && has models/pocket/pocket.gguf && has pyproject.toml'
check "what is built is not" eval '! grep -q "^dgemma-$version/build/" "$temp/list"'
finish

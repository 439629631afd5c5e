#!/bin/sh
# include/dgemma.h has the version; whatever repeats it says the same. From the environment: DGEMMA.
. tests/support/shell_test.sh

version=$(sed -n 's/^.define DGEMMA_VERSION "\(.*\)"/\1/p' include/dgemma.h)
all_in() { # all_in FILE PATTERN: every match of the pattern, whose group is a version, has this one
    found=$(sed -n "s/$2/\1/p" "$1" | sort -u)
    [ "$found" = "$version" ] || { echo "$1: $found, not $version"; return 1; }
}
check "it is a semantic one" eval 'echo "$version" | grep -Exq "(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"'
check "the Python package" all_in python/dgemma/_library.py '^__version__ = "\(.*\)"'
check "the image of the Kubernetes manifest" all_in examples/kubernetes.yaml '^ *image: dgemma:\(.*\)'
newest() { [ "$(sed -n 's/^## \([^,]*\),.*/\1/p' CHANGELOG.md | head -n 1)" = "$version" ]; }
check "the newest entry of the changelog" newest
if [ -n "$DGEMMA" ]; then
    check "the program" eval '"$DGEMMA" --version | grep -qwF "$version"'
else
    skip "the program" "there is none"
fi
finish

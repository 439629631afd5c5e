#!/bin/sh
# A name has one owner: a function that the server and the library both have would be linked without
# a word, and called in place of the other. From the environment: BUILD.
. tests/support/shell_test.sh

twice() {
    nm --defined-only "$BUILD/libdgemma.a" "$BUILD/libserver.a" 2>/dev/null |
        awk '$2 ~ /^[TDBRC]$/ {print $3}' | grep -v '^__\(odr\|asan\|start\|stop\)' | sort | uniq -d
}
one_owner() {
    names=$(twice)
    [ -z "$names" ] || { echo "defined twice: $names"; return 1; }
}
if command -v nm >/dev/null 2>&1; then
    check "there are names" sh -c "nm --defined-only '$BUILD/libserver.a' | grep -q ' T dg_server_start'"
    check "each name has one owner" one_owner
else
    skip "names with two owners" "there is no nm"
fi
finish

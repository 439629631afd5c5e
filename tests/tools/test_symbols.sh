#!/bin/sh
# A name has one owner: a function that the server and the library both have would be linked without
# a word, and called in place of the other. And of the system's functions of real numbers the library
# uses those alone that are exact, since a seed's text depends on the last bit (src/base/real.h).
# From the environment: BUILD.
. tests/support/shell_test.sh

twice() {
    nm --defined-only "$BUILD/libdgemma.a" "$BUILD/libserver.a" 2>/dev/null |
        awk '$2 ~ /^[TDBRC]$/ {print $3}' | grep -v '^__\(odr\|asan\|start\|stop\)' | sort | uniq -d
}
one_owner() {
    names=$(twice)
    [ -z "$names" ] || { echo "defined twice: $names"; return 1; }
}
inexact='exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sin|cos|tan|sincos|asin|acos|atan|atan2'
inexact="$inexact|sinh|cosh|tanh|asinh|acosh|atanh|erf|erfc|cbrt|hypot|tgamma|lgamma"
ours_alone() {
    names=$(nm --undefined-only "$BUILD/libdgemma.a" 2>/dev/null | awk '{print $2}' |
        grep -E -x "($inexact)[fl]?" | sort -u)
    [ -z "$names" ] || { echo "of the system: $names"; return 1; }
}
if command -v nm >/dev/null 2>&1; then
    check "there are names" sh -c "nm --defined-only '$BUILD/libserver.a' | grep -q ' T dg_server_start'"
    check "each name has one owner" one_owner
    check "inexact functions are our own" ours_alone
else
    skip "names with two owners, inexact functions" "there is no nm"
fi
finish

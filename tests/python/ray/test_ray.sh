#!/bin/sh
# Rows over a Ray cluster of this machine. Ray is installed for it, some 300 MB.
#
#   test_ray.sh [ROWS] [MODEL]
#
# From the environment: BUILD.
. tests/support/shell_test.sh
. tests/server/client_venv.sh

if ! command -v python3 >/dev/null 2>&1 || ! installed build/ray ray "ray[data]"; then
    skip "rows over Ray" "it cannot be installed here"
    finish
fi
mkdir "$temp/site"
cp -r python/dgemma "$temp/site"
cp "$BUILD"/libdgemma.so.* "$temp/site/dgemma"
check_rows() {
    PYTHONPATH=$temp/site build/ray/bin/python tests/python/ray/rows_over_ray.py "$@" 2>"$temp/ray.log" >"$temp/ray.out"
    status=$?
    cat "$temp/ray.out"
    [ "$status" -eq 0 ] || tail -n 20 "$temp/ray.log"
    return "$status"
}
check "rows over Ray" check_rows "$@"
sed -n 's/^   /   /p' "$temp/ray.out"
finish

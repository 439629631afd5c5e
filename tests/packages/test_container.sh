#!/bin/sh
# `make test-container`: the steps of packaging/Containerfile, each in a chroot, and the image that comes of them, run and asked. Root is needed, and
# the registry that this system's packages come from.
. tests/support/shell_test.sh
. tests/packages/chroot.sh

why=$(no_chroot)
[ -n "$why" ] || grep -q "^ARG DEBIAN=$codename\$" packaging/Containerfile || why="this is not the Debian that the recipe is made of"
if [ -n "$why" ]; then
    skip "the container's steps" "$why"
    finish
fi
steps() {
    python3 tests/packages/container_steps.py "$base" "$temp/stages" >"$temp/steps.log" 2>&1 || { tail -n 40 "$temp/steps.log"; return 1; }
}
check "the steps of the container, and its image" steps
finish

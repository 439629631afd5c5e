#!/bin/sh
# What the small model is taught to write is, in each family, in the pieces in which it is read. From the environment: DGEMMA.
. tests/support/shell_test.sh

name="samples are written as they are read"
if [ -z "$DGEMMA" ] || ! command -v python3 >/dev/null 2>&1; then
    skip "$name" "there is no program in this build, or no python3"
elif [ -n "${SAN:-}" ]; then
    skip "$name" "they are the same in a sanitized build"
else
    check "$name" env PYTHONDONTWRITEBYTECODE=1 python3 models/pocket/check_samples.py --dgemma "$DGEMMA" --per-family 8
fi
finish

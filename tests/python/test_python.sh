#!/bin/sh
# The Python package under pytest, on the pocket model; then a wheel of it in an empty environment.
# From the environment: BUILD, CC, SAN.
. tests/support/shell_test.sh
. tests/server/client_venv.sh

if ! command -v python3 >/dev/null 2>&1; then
    skip "the Python package" "there is no python3"
    finish
fi
if [ -n "${SAN:-}" ]; then
    skip "the Python package" "a library with a sanitizer in it cannot be loaded by python3"
    finish
fi
if [ ! -e models/pocket/pocket.gguf ]; then
    skip "the Python package" "there is no pocket model"
    finish
fi
if python3 -c 'import pytest' 2>/dev/null; then
    python=python3
elif installed build/pytest pytest pytest numpy; then
    python=build/pytest/bin/python
else
    skip "the Python package" "there is no pytest, and it cannot be installed here"
    finish
fi

# The package as it is installed: with the library of this configuration in it.
mkdir "$temp/site"
cp -r python/dgemma "$temp/site"
cp "$BUILD"/libdgemma.so.* "$temp/site/dgemma"
ln -s "$PWD"/models/pocket/*.gguf "$temp/site/dgemma"
PYTHONPATH=$temp/site "$python" -m pytest -q -p no:cacheprovider tests/python >"$temp/pytest.log" 2>&1
status=$?
line=$(tail -n 1 "$temp/pytest.log")
number() { echo "$line" | grep -o "[0-9]* $1" | cut -d' ' -f1; }
passed=$(number passed) failed=$(number failed) errors=$(number error) skipped=$(number skipped)
n_passed=$((n_passed + ${passed:-0})) n_skipped=$((n_skipped + ${skipped:-0}))
n_failed=$((n_failed + ${failed:-0} + ${errors:-0}))
if [ "$status" -ne 0 ]; then
    cat "$temp/pytest.log"
    [ "$n_failed" -gt 0 ] || n_failed=1
fi

# ---- the wheel ----
# In build/release: pip builds there, whatever this configuration is.
if [ "${BUILD#build/}" != release ]; then
    skip "a wheel" "it is made of build/release"
    finish
fi
if ! { installed build/wheelbuild setuptools "setuptools>=64" wheel; }; then
    skip "a wheel" "setuptools cannot be installed here"
    finish
fi
build_wheel() {
    build/wheelbuild/bin/pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$temp/wheel" . &&
        ls "$temp"/wheel/dgemma-*-py3-none-linux_*.whl
}
check "a wheel is built" build_wheel
# Its name tells which CUDA is in it.
printf '#!/bin/sh\necho "Cuda compilation tools, release 12.4, V12.4.131"\n' >"$temp/nvcc"
chmod +x "$temp/nvcc"
label_is() { [ "$(make -s --no-print-directory wheel-label "$2" NVCC="$temp/nvcc")" = "$1" ]; }
check "a wheel with CUDA says so in its version" label_is cuda12 CUDA=1
check "one without does not" label_is '' CUDA=0
# In an environment that has nothing else, away from the source.
installs() {
    python3 -m venv --without-pip "$temp/empty" &&
        build/wheelbuild/bin/pip --python "$temp/empty/bin/python" install --quiet --disable-pip-version-check --no-index "$temp"/wheel/*.whl
}
check "it is installed into an empty environment" installs
answers() {
    for _ in 1 2 3; do # the machine may have other work to do: not each time
        start=$(date +%s)
        (cd "$temp" && timeout 600 empty/bin/python -c 'import dgemma; print(dgemma.Model(threads=1).chat("What is the capital of France?"))') >"$temp/answer" &&
            grep -q Paris "$temp/answer" || return
        [ $(($(date +%s) - start)) -gt 10 ] || return 0
    done
    return 1
}
check "and answers a question within 10 s" answers
finish

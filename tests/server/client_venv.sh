# Sourced by tests that use official Python clients. They are installed from PyPI into build/, once; where that cannot
# be, the suite is skipped by name and the script ends.
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
venv=build/clients

# need_client NAME VERSIONS
need_client() {
    [ -e "$venv/$1.ok" ] && return
    { { [ -e "$venv/bin/pip" ] || python3 -m venv "$venv"; } &&
        "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 20 "$1$2" &&
        touch "$venv/$1.ok"; } >"$temp/install.log" 2>&1 && return
    sed 's/^/    /' "$temp/install.log" | tail -n 3
    skip "the official $1 client" "it cannot be installed here"
    finish
}

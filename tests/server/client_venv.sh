# Sourced by tests that use official Python clients. They are installed from PyPI into build/, once; where that cannot
# be, the suite is skipped by name and the script ends.
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
venv=build/clients

# installed FOLDER NAME ARGUMENT...: whether pip has, or could, put what the arguments say there, called NAME
installed() {
    where=$1 name=$2
    shift 2
    [ -e "$where/$name.ok" ] && return
    { { [ -e "$where/bin/pip" ] || python3 -m venv "$where"; } &&
        "$where/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 20 "$@" &&
        touch "$where/$name.ok"; } >"$temp/install.log" 2>&1 && return
    sed 's/^/    /' "$temp/install.log" | tail -n 3
    return 1
}

# need_client NAME VERSIONS
need_client() {
    installed "$venv" "$1" "$1$2" && return
    skip "the official $1 client" "it cannot be installed here"
    finish
}

# Those of frameworks.txt, in a place of their own: their versions are not those of the clients.
have_frameworks() {
    installed build/frameworks frameworks --only-binary :all: --no-deps --no-compile -r tests/server/frameworks.txt &&
        venv=build/frameworks
}

#!/bin/sh
# Files in examples/ that other programs read: those programs accept them, and every option in them is one.
# From the environment: DGEMMA, CLIENTS (all: the schemas of Kubernetes are installed).
. tests/support/shell_test.sh
. tests/server/client_venv.sh

PATH=$PATH:/usr/sbin
options_exist() {
    "$DGEMMA" serve --help >"$temp/help"
    for option in $(grep -v '^ *#' "$1" | grep -o -e '--[a-z][a-z-]*' | sort -u); do
        grep -qF -e " $option " "$temp/help" || { echo "dgemma serve has no $option"; return 1; }
    done
}
check "options in the systemd unit" options_exist examples/dgemma.service
check "options in the Kubernetes manifest" options_exist examples/kubernetes.yaml
grep '^CMD' packaging/Containerfile >"$temp/command"
check "options in the container" options_exist "$temp/command"

unit() {
    sed 's|^ExecStart=[^ ]*|ExecStart=/bin/true|' examples/dgemma.service >"$temp/dgemma.service"
    cp examples/dgemma.socket "$temp/"
    systemd-analyze verify --man=no "$temp/dgemma.service" "$temp/dgemma.socket" >"$temp/said" 2>&1 && [ ! -s "$temp/said" ] || { cat "$temp/said"; return 1; }
}
if command -v systemd-analyze >/dev/null 2>&1; then
    check "systemd's own view of the units" unit
else
    skip "systemd's own view of the units" "there is no systemd-analyze"
fi
if command -v haproxy >/dev/null 2>&1; then
    check "HAProxy's own view of its configuration" haproxy -c -q -f examples/haproxy.cfg
else
    skip "HAProxy's own view of its configuration" "it is not installed"
fi
if python3 -c 'import yaml' 2>/dev/null; then
    check "the Kubernetes manifest is YAML" python3 -c 'import yaml; assert len(list(yaml.safe_load_all(open("examples/kubernetes.yaml")))) == 2'
else
    skip "the Kubernetes manifest is YAML" "there is no yaml for python3"
fi
# Schemas of the newest version that it knows.
schemas() { build/kubernetes/bin/kubernetes-validate --strict examples/kubernetes.yaml; }
if [ "${CLIENTS:-}" != all ]; then
    skip "the Kubernetes manifest against its schemas" "CLIENTS=all installs them"
elif installed build/kubernetes kubernetes-validate kubernetes-validate; then
    check "the Kubernetes manifest against its schemas" schemas
else
    skip "the Kubernetes manifest against its schemas" "they cannot be installed here"
fi
finish

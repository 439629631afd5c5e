#!/bin/sh
# The official openai client for Python against a server that keeps things. From the environment: DGEMMA, SAN.
. tests/support/shell_test.sh
. tests/server/client_venv.sh

need_client openai '>=2,<3'
if ! ldd "$DGEMMA" 2>/dev/null | grep -q libsqlite3; then
    skip "files, batches and kept responses with the official client" "dgemma was built without SQLite"
    finish
fi
exec "$venv/bin/python" tests/server/state_client.py

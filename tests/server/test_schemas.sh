#!/bin/sh
# Libraries that ask for answers in the form of a schema, against the server: the official clients, and with CLIENTS=all
# frameworks too, which take a minute to install. From the environment: DGEMMA, SAN, CLIENTS.
. tests/support/shell_test.sh
. tests/server/client_venv.sh

if [ "${CLIENTS:-}" != all ] || ! have_frameworks; then
    need_client openai '>=2,<3'
    need_client anthropic '>=0.40,<3'
    need_client ollama '<1'
fi
exec "$venv/bin/python" tests/server/schema_clients.py

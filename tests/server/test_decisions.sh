#!/bin/sh
# Decisions through OpenAI's and TypeSafe's own libraries; CLIENTS=all installs them. From the environment: DGEMMA, SAN, CLIENTS.
. tests/support/shell_test.sh
. tests/server/client_venv.sh

venv=build/decisions # newer than what others fit together with
if [ "${CLIENTS:-}" != all ]; then
    skip "decisions with client libraries" "CLIENTS=all installs them"
    finish
fi
need_client openai '>=3.40,<4'
need_client typesafe-sdk '<1'
exec "$venv/bin/python" tests/server/decision_clients.py

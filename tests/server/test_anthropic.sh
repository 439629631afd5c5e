#!/bin/sh
# The official anthropic client for Python against the server. From the environment: DGEMMA, SAN.
. tests/support/shell_test.sh
. tests/server/client_venv.sh

need_client anthropic '>=0.40,<3'
exec "$venv/bin/python" tests/server/anthropic_client.py

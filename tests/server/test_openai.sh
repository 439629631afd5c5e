#!/bin/sh
# The official openai client for Python against the server. From the environment: DGEMMA, SAN.
. tests/support/shell_test.sh
. tests/server/client_venv.sh

need_client openai '>=2,<3'
exec "$venv/bin/python" tests/server/openai_client.py

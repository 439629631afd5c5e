#!/bin/sh
# The official ollama client for Python against the server. From the environment: DGEMMA, SAN.
. tests/support/shell_test.sh
. tests/server/client_venv.sh

need_client ollama '<1'
exec "$venv/bin/python" tests/server/ollama_client.py

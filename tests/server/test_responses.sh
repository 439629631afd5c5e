#!/bin/sh
# The official openai client's Responses calls against the server. From the environment: DGEMMA, SAN.
. tests/support/shell_test.sh
. tests/server/client_venv.sh

need_client openai '>=2,<3'
exec "$venv/bin/python" tests/server/responses_client.py

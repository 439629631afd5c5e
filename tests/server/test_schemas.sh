#!/bin/sh
# Libraries that ask for answers in the form of a schema, against the server: the official clients, and those frameworks
# that are there. CLIENTS=all installs the frameworks too, which takes minutes. From the environment: DGEMMA, SAN, CLIENTS.
. tests/support/shell_test.sh
. tests/server/client_venv.sh

need_client openai '>=2,<3'
need_client anthropic '>=0.40,<3'
need_client ollama '<1'
if [ "${CLIENTS:-}" = all ]; then
    need_client instructor '<2'
    need_client pydantic-ai-slim '[openai]'
    need_client langchain-openai '<2'
    need_client llama-index-llms-openai-like ''
    need_client openai-agents ''
fi
exec "$venv/bin/python" tests/server/schema_clients.py

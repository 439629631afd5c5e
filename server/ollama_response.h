/* Answers in Ollama's form: objects, streamed as lines. */
#ifndef DG_SERVER_OLLAMA_RESPONSE_H
#define DG_SERVER_OLLAMA_RESPONSE_H

#include "generation.h"

extern const dg_dialect dg_ollama_chat, dg_ollama_generate;

#endif

/* What Ollama's clients ask before they talk: which models there are, and what they can do. */
#ifndef DG_SERVER_OLLAMA_MODELS_H
#define DG_SERVER_OLLAMA_MODELS_H

#include "calls.h"

void dg_ollama_tags(dg_call *c);
void dg_ollama_running(dg_call *c);
void dg_ollama_show(dg_call *c);
void dg_ollama_version(dg_call *c);

/* The answer to who wanted nothing but that a model goes. */
void dg_ollama_unloaded(dg_call *c, const dg_model *m);

#endif

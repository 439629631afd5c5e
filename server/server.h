/* `dgemma serve`: an engine behind HTTP, in the forms that OpenAI's, Anthropic's and
 * Ollama's clients speak.
 *
 * One thread moves bytes, a few workers read requests and write answers, one watches the clock, one
 * writes the log. None of them waits for a client, and the engine waits for none of them. */
#ifndef DG_SERVER_SERVER_H
#define DG_SERVER_SERVER_H

#include "server_options.h"

typedef struct dg_server dg_server;

dg_server_options dg_server_defaults(void);

/* Listens and answers from here on. The engine is borrowed until dg_server_free; NULL: everything
 * but the page is answered with 503, "loading", until dg_server_attach brings one, or, without one,
 * loads those of the options' models that are to be there from the start. */
dgemma_status dg_server_start(dg_server **out, dgemma_engine *engine, const dg_server_options *opt,
                              dgemma_error *err);
dgemma_status dg_server_attach(dg_server *s, dgemma_engine *engine, dgemma_error *err);
int dg_server_port(const dg_server *s);

/* /health says that it is going away, and all else is as before: balancers learn it late. */
void dg_server_leave(dg_server *s);

/* New requests are refused with 503 from now on; those that were accepted go on. */
void dg_server_drain(dg_server *s);

/* Waits until nothing that was accepted is under way; false: something is, after this time. */
bool dg_server_wait_idle(dg_server *s, double seconds);

/* Ends what is under way, tells the clients, and stops listening. */
void dg_server_stop(dg_server *s);

/* After dg_server_stop. NULL is fine. */
void dg_server_free(dg_server *s);

#endif

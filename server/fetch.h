/* Pictures that a request names by their address, brought by libcurl. The library is loaded by a
 * server that was told from which hosts: no other one needs it. */
#ifndef DG_SERVER_FETCH_H
#define DG_SERVER_FETCH_H

#include <stdatomic.h>
#include <sys/socket.h>
#include "auth.h"
#include "base/buf.h"
#include "dgemma.h"
#include "errors.h"

/* Fetches wait for other machines, each on a worker of the server. */
enum { DG_MAX_FETCHES = 8 };

typedef struct dg_fetcher dg_fetcher;

/* `hosts` is borrowed: names as they stand in an address, and "*" for every host whose address is
 * public. A host that is named may be anywhere. Once *stop is true, fetches are given up. */
dgemma_status dg_fetcher_open(dg_fetcher **out, dg_words hosts, const atomic_bool *stop,
                              dgemma_error *err);
void dg_fetcher_close(dg_fetcher *f); /* NULL is fine */

/* One of DG_MAX_FETCHES places; false: all are taken. */
bool dg_fetcher_enter(dg_fetcher *f);
void dg_fetcher_leave(dg_fetcher *f);

/* Appends what is at an http or https address to *out, whose limit holds. `until`: the time of
 * dg_clock_now at which it is given up. False: *e says why. */
bool dg_fetch(const dg_fetcher *f, const char *url, double until, dg_buf *out, dg_http_error *e);

/* Not this machine, not its network, not one that is reserved for something. */
bool dg_address_is_public(const struct sockaddr *address);

#endif

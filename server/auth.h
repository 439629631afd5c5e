/* Who may ask: API keys, and pages of other sites. Pure functions of header values. */
#ifndef DG_SERVER_AUTH_H
#define DG_SERVER_AUTH_H

#include <stdbool.h>
#include <stddef.h>

typedef struct dg_words {
    const char *const *words;
    size_t n;
} dg_words;

/* Which of the keys `authorization` ("Bearer KEY") or `x_api_key` is, from 1; -1: none of them; 0:
 * there are no keys, and everybody may ask. Either header may be NULL. The time taken does not
 * depend on how much of a key was right. */
int dg_auth_key(dg_words keys, const char *authorization, const char *x_api_key);

/* Whether a page of `origin` may use the server: one of `allowed` ("*": any), or the server's own,
 * which is the one that `host` names. NULL origin: no page asks. */
bool dg_origin_allows(dg_words allowed, const char *origin, const char *host);

/* The same for answers that other sites' scripts may read: only what `allowed` says. */
bool dg_origin_listed(dg_words allowed, const char *origin);

/* Whether `host`, the name that a client used for a server of this machine alone, may be one: an
 * address, a name that no public site can have, or the name of a site in `allowed`. A page whose
 * own name was made to lead here comes with that name. NULL: it is no browser. */
bool dg_host_allows(dg_words allowed, const char *host);

#endif

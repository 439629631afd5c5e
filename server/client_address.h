/* Whom a request comes from, when proxies stand between: addresses, networks of trusted proxies,
 * and what those say in X-Forwarded-For. Pure: no I/O. */
#ifndef DG_SERVER_CLIENT_ADDRESS_H
#define DG_SERVER_CLIENT_ADDRESS_H

#include "base/error.h"
#include "head.h"

enum { DG_ADDRESS_TEXT = 46, DG_MAX_PROXIES = 64 };

/* IPv6, or IPv4 as IPv6 has it: ::ffff:a.b.c.d. */
typedef struct dg_address {
    uint8_t bytes[16];
} dg_address;

typedef struct dg_network {
    dg_address at;
    int n_bit; /* that count, of 128 */
} dg_network;

typedef struct dg_proxies {
    dg_network at[DG_MAX_PROXIES];
    size_t n;
} dg_proxies;

/* Networks with commas between them: 10.0.0.0/8,::1. NULL or "": none. */
dgemma_status dg_proxies_read(dg_proxies *out, const char *text, dgemma_error *err);

/* `peer`, who holds the connection, unless it is a trusted proxy: then whom that names in
 * X-Forwarded-For, and so on from the last name to the first, as long as each is trusted. What
 * cannot be read ends the search: whoever wrote it is the client. */
dg_address dg_client_address(const dg_proxies *trusted, dg_address peer, const dg_head *head);

/* "" where there is none. */
void dg_address_print(char out[DG_ADDRESS_TEXT], dg_address a);

struct sockaddr_storage;
dg_address dg_address_of_socket(const struct sockaddr_storage *from);

#endif

#include "client_address.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static bool is_v4(const dg_address *a)
{
    return !memcmp(a->bytes, mapped, sizeof mapped);
}

static dg_address from_v4(const void *four)
{
    dg_address a;
    memcpy(a.bytes, mapped, sizeof mapped);
    memcpy(a.bytes + 12, four, 4);
    return a;
}

dg_address dg_address_of_socket(const struct sockaddr_storage *from)
{
    dg_address a = {0};
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (from->ss_family == AF_INET) {
        memcpy(&v4, from, sizeof v4);
        return from_v4(&v4.sin_addr);
    }
    memcpy(&v6, from, sizeof v6);
    if (from->ss_family == AF_INET6)
        memcpy(a.bytes, &v6.sin6_addr, sizeof a.bytes);
    return a;
}

void dg_address_print(char out[DG_ADDRESS_TEXT], dg_address a)
{
    static const dg_address none;
    out[0] = '\0';
    if (is_v4(&a))
        inet_ntop(AF_INET, a.bytes + 12, out, DG_ADDRESS_TEXT);
    else if (memcmp(&a, &none, sizeof a) != 0)
        inet_ntop(AF_INET6, a.bytes, out, DG_ADDRESS_TEXT);
}

/* `n_bit`: that an address of this kind has. */
static bool read_address(dg_address *out, int *n_bit, const char *text, size_t n)
{
    char name[DG_ADDRESS_TEXT];
    uint8_t four[4];
    if (n >= sizeof name)
        return false;
    memcpy(name, text, n);
    name[n] = '\0';
    *n_bit = strchr(name, ':') ? 128 : 32;
    if (*n_bit == 128)
        return inet_pton(AF_INET6, name, out->bytes) == 1;
    if (inet_pton(AF_INET, name, four) != 1)
        return false;
    *out = from_v4(four);
    return true;
}

/* ---- trusted proxies ---- */

static bool bit(const dg_address *a, int i)
{
    return a->bytes[i / 8] >> (7 - i % 8) & 1;
}

/* ::/0 is all of IPv6, and not of IPv4, whatever it looks like here. */
static bool is_in(const dg_network *net, const dg_address *a)
{
    if (net->n_bit < 96 && is_v4(a))
        return false;
    for (int i = 0; i < net->n_bit; i++)
        if (bit(a, i) != bit(&net->at, i))
            return false;
    return true;
}

static bool is_trusted(const dg_proxies *trusted, const dg_address *a)
{
    for (size_t i = 0; i < trusted->n; i++)
        if (is_in(&trusted->at[i], a))
            return true;
    return false;
}

/* Bits behind the prefix must be 0: 10.1.2.3/8 is a slip, and which one nobody knows. */
static bool read_network(dg_network *net, const char *text, size_t n)
{
    const char *slash = memchr(text, '/', n);
    int n_all, n_prefix = 0;
    if (!read_address(&net->at, &n_all, text, slash ? (size_t)(slash - text) : n))
        return false;
    if (slash) {
        size_t n_digit = n - (size_t)(slash + 1 - text);
        if (!n_digit || n_digit > 3 || strspn(slash + 1, "0123456789") < n_digit)
            return false;
        for (size_t i = 0; i < n_digit; i++)
            n_prefix = 10 * n_prefix + (slash[1 + i] - '0');
    } else {
        n_prefix = n_all;
    }
    net->n_bit = n_prefix + 128 - n_all;
    for (int i = net->n_bit; i < 128; i++)
        if (bit(&net->at, i))
            return false;
    return n_prefix <= n_all;
}

dgemma_status dg_proxies_read(dg_proxies *out, const char *text, dgemma_error *err)
{
    out->n = 0;
    for (const char *rest = text ? text : ""; *rest;) {
        size_t n = strcspn(rest, ",");
        if (out->n == DG_MAX_PROXIES)
            return dg_fail(err, DGEMMA_E_ARG, "there are more than %d trusted proxies",
                           DG_MAX_PROXIES);
        if (!read_network(&out->at[out->n++], rest, n))
            return dg_fail(err, DGEMMA_E_ARG,
                           "trusted proxies: '%.*s' is no address and no network like 10.0.0.0/8 "
                           "or fd00::/8",
                           n > 60 ? 60 : (int)n, rest);
        rest += n;
        if (*rest && !*++rest)
            return dg_fail(err, DGEMMA_E_ARG, "trusted proxies: nothing follows the last comma");
    }
    return DGEMMA_OK;
}

/* ---- what they say ---- */

/* One name of the list: an address, perhaps with a port. */
static bool read_hop(dg_address *out, const char *text, size_t n)
{
    int n_bit;
    const char *end = text + n;
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    while (end > text && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    n = (size_t)(end - text);
    if (n && *text == '[') {
        const char *close = memchr(text, ']', n);
        return close && (close + 1 == end || close[1] == ':') &&
               read_address(out, &n_bit, text + 1, (size_t)(close - text - 1)) && n_bit == 128;
    }
    const char *colon = memchr(text, ':', n);
    bool has_port = colon && !memchr(colon + 1, ':', (size_t)(end - colon - 1));
    return read_address(out, &n_bit, text, has_port ? (size_t)(colon - text) : n);
}

/* From its last name on; true: to the first, all of them trusted. */
static bool walk_back(const dg_proxies *trusted, dg_address *client, const char *list)
{
    for (const char *end = list + strlen(list);;) {
        const char *begin = end;
        dg_address hop;
        while (begin > list && begin[-1] != ',')
            begin--;
        if (!is_trusted(trusted, client) || !read_hop(&hop, begin, (size_t)(end - begin)))
            return false;
        *client = hop;
        if (begin == list)
            return true;
        end = begin - 1;
    }
}

dg_address dg_client_address(const dg_proxies *trusted, dg_address peer, const dg_head *head)
{
    const char *list;
    int n = 0;
    if (!is_trusted(trusted, &peer))
        return peer;
    /* some proxies add to the field that came, others add a field */
    while (dg_head_nth(head, "X-Forwarded-For", n))
        n++;
    while (n && (list = dg_head_nth(head, "X-Forwarded-For", n - 1)) &&
           walk_back(trusted, &peer, list))
        n--;
    return peer;
}

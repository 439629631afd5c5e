#include "auth.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Looks at every byte of what was presented, whatever the first ones say; only the lengths show. */
static unsigned differs(const char *presented, const char *key)
{
    size_t n = strlen(presented), n_key = strlen(key);
    unsigned diff = n != n_key;
    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)presented[i] ^ (unsigned char)key[n_key ? i % n_key : 0];
    return diff;
}

static int find_key(dg_words keys, const char *presented)
{
    int found = -1;
    for (size_t i = keys.n; i-- > 0;)
        found = differs(presented, keys.words[i]) ? found : (int)i + 1;
    return found;
}

int dg_auth_key(dg_words keys, const char *authorization, const char *x_api_key)
{
    if (!keys.n)
        return 0;
    bool bearer = authorization && strncasecmp(authorization, "Bearer ", 7) == 0;
    int found = bearer ? find_key(keys, authorization + 7) : -1;
    return found < 0 && x_api_key ? find_key(keys, x_api_key) : found;
}

bool dg_origin_listed(dg_words allowed, const char *origin)
{
    for (size_t i = 0; origin && i < allowed.n; i++)
        if (!strcmp(allowed.words[i], "*") || !strcasecmp(allowed.words[i], origin))
            return true;
    return false;
}

bool dg_origin_allows(dg_words allowed, const char *origin, const char *host)
{
    if (!origin || dg_origin_listed(allowed, origin))
        return true;
    const char *name = strstr(origin, "://");
    return name && host && !strcasecmp(name + 3, host);
}

/* Whether the site `origin` ("https://name" or "https://name:port") is at `host`, which is n bytes.
 */
static bool is_at(const char *origin, const char *host, size_t n)
{
    const char *name = strstr(origin, "://");
    return name && !strncasecmp(name + 3, host, n) && (!name[3 + n] || name[3 + n] == ':');
}

/* A name that nobody can own in the public system of names: without a dot, or below a domain that
 * is kept for machines and networks of one's own. */
static bool is_private_name(const char *name)
{
    static const char *const domains[] = {".localhost", ".local", ".internal", ".home.arpa"};
    size_t n = strlen(name);
    if (n && !strchr(name, '.'))
        return true;
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        size_t k = strlen(domains[i]);
        if (n > k && !strcasecmp(name + n - k, domains[i]))
            return true;
    }
    return false;
}

bool dg_host_allows(dg_words allowed, const char *host)
{
    char name[256];
    struct in6_addr address;
    if (!host)
        return true;
    bool six = host[0] == '[';
    size_t n = six ? strcspn(host, "]") - 1 : strcspn(host, ":");
    if (n >= sizeof name || (six && host[n + 1] != ']'))
        return false;
    snprintf(name, sizeof name, "%.*s", (int)n, host + six);
    if (inet_pton(six ? AF_INET6 : AF_INET, name, &address) == 1 || (!six && is_private_name(name)))
        return true;
    for (size_t i = 0; i < allowed.n; i++)
        if (!strcmp(allowed.words[i], "*") || is_at(allowed.words[i], host, n))
            return true;
    return false;
}

#include "fetch.h"
#include <netinet/in.h>
#include <string.h>
#include <strings.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

/* ---- addresses ---- */

/* IPv4 ranges that are not the public internet's: IANA's registry of special purposes. */
static const struct {
    uint32_t first;
    int bits;
} reserved[] = {
    {0x00000000, 8},  /* this network */
    {0x0a000000, 8},  /* private */
    {0x64400000, 10}, /* carriers' own */
    {0x7f000000, 8},  /* this machine */
    {0xa9fe0000, 16}, /* this link; where clouds keep their secrets */
    {0xac100000, 12}, /* private */
    {0xc0000000, 24}, /* protocols */
    {0xc0000200, 24}, /* examples */
    {0xc0586300, 24}, /* 6to4 relays */
    {0xc0a80000, 16}, /* private */
    {0xc6120000, 15}, /* benchmarks */
    {0xc6336400, 24}, /* examples */
    {0xcb007100, 24}, /* examples */
    {0xe0000000, 3},  /* multicast and what is left */
};

static bool is_public4(uint32_t address)
{
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if ((address ^ reserved[i].first) >> (32 - reserved[i].bits) == 0)
            return false;
    return true;
}

/* 2000::/3 is all that was given out; of that, tunnels carry IPv4 addresses inside. */
static bool is_public6(const uint8_t a[16])
{
    bool given_out = a[0] >> 5 == 1;
    bool special = a[0] == 0x20 && a[1] == 0x01 && a[2] < 2; /* 2001::/23: Teredo and others */
    bool example = a[0] == 0x20 && a[1] == 0x01 && a[2] == 0x0d && a[3] == 0xb8;
    bool tunnel = a[0] == 0x20 && a[1] == 0x02; /* 6to4 */
    return given_out && !special && !example && !tunnel;
}

bool dg_address_is_public(const struct sockaddr *address)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    switch (address->sa_family) {
    case AF_INET:
        memcpy(&v4, address, sizeof v4);
        return is_public4(ntohl(v4.sin_addr.s_addr));
    case AF_INET6:
        memcpy(&v6, address, sizeof v6);
        return is_public6(v6.sin6_addr.s6_addr);
    default:
        return false;
    }
}

#ifdef HAVE_CURL

#define CURL_DISABLE_TYPECHECK /* its macros would stand in the way of pointers to functions */
#include <curl/curl.h>
#include <dlfcn.h>

enum { MAX_REDIRECTS = 3, CONNECT_SECONDS = 5 };

#define CURL_FUNCTIONS(X)                                                                          \
    X(curl_global_init)                                                                            \
    X(curl_easy_init)                                                                              \
    X(curl_easy_setopt)                                                                            \
    X(curl_easy_perform)                                                                           \
    X(curl_easy_getinfo)                                                                           \
    X(curl_easy_strerror)                                                                          \
    X(curl_easy_cleanup)                                                                           \
    X(curl_url)                                                                                    \
    X(curl_url_set)                                                                                \
    X(curl_url_get)                                                                                \
    X(curl_url_cleanup)                                                                            \
    X(curl_free)

struct dg_fetcher {
    dg_words hosts;
    const atomic_bool *stop;
    atomic_int n_fetching;
#define MEMBER(name) __typeof__(&(name)) name;
    CURL_FUNCTIONS(MEMBER)
#undef MEMBER
};

/* ---- the library ---- */

static dgemma_status load(dg_fetcher *f, dgemma_error *err)
{
    /* never closed: its own libraries leave handlers for the exit */
    void *library = dlopen("libcurl.so.4", RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                       "pictures cannot be fetched: libcurl.so.4 cannot be loaded");
#define FIND(name)                                                                                 \
    if (!(f->name = (__typeof__(f->name))dlsym(library, #name)))                                   \
        return dg_fail(err, DGEMMA_E_UNSUPPORTED, "libcurl.so.4 lacks %s", #name);
    CURL_FUNCTIONS(FIND)
#undef FIND
    if (f->curl_global_init(CURL_GLOBAL_DEFAULT))
        return dg_fail(err, DGEMMA_E_INTERNAL, "libcurl does not start");
    return DGEMMA_OK;
}

dgemma_status dg_fetcher_open(dg_fetcher **out, dg_words hosts, const atomic_bool *stop,
                              dgemma_error *err)
{
    dg_fetcher *f = *out = dg_calloc(1, sizeof *f);
    if (!f)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    f->hosts = hosts;
    f->stop = stop;
    return load(f, err);
}

void dg_fetcher_close(dg_fetcher *f)
{
    dg_free(f);
}

bool dg_fetcher_enter(dg_fetcher *f)
{
    if (atomic_fetch_add(&f->n_fetching, 1) < DG_MAX_FETCHES)
        return true;
    dg_fetcher_leave(f);
    return false;
}

void dg_fetcher_leave(dg_fetcher *f)
{
    atomic_fetch_sub(&f->n_fetching, 1);
}

/* ---- which hosts ---- */

typedef enum trust {
    TRUST_NONE,
    TRUST_PUBLIC, /* if its address is public */
    TRUST_NAMED
} trust;

static trust trust_of(const dg_fetcher *f, const char *host)
{
    trust t = TRUST_NONE;
    for (size_t i = 0; i < f->hosts.n; i++)
        if (!strcasecmp(f->hosts.words[i], host))
            return TRUST_NAMED;
        else if (!strcmp(f->hosts.words[i], "*"))
            t = TRUST_PUBLIC;
    return t;
}

/* As libcurl itself reads the address, so that there are no two opinions on what the host is. */
static bool check_address(const dg_fetcher *f, CURLU *parsed, trust *out, dg_http_error *e)
{
    char *scheme = NULL, *host = NULL, *user = NULL;
    bool ok = false;
    f->curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0);
    f->curl_url_get(parsed, CURLUPART_HOST, &host, 0);
    f->curl_url_get(parsed, CURLUPART_USER, &user, 0);
    *out = host ? trust_of(f, host) : TRUST_NONE;
    if (!scheme || (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0))
        dg_refuse(e, 400, "invalid_image_url", NULL, "a picture's address: wanted http or https");
    else if (user)
        dg_refuse(e, 400, "invalid_image_url", NULL, "a picture's address has a user's name in it");
    else if (*out == TRUST_NONE)
        dg_refuse(
            e, 400, "image_host_not_allowed", NULL,
            "pictures are not fetched from %.100s; this server was not told to (--image-host)",
            host ? host : "there");
    else
        ok = true;
    f->curl_free(scheme);
    f->curl_free(host);
    f->curl_free(user);
    return ok;
}

/* Asked with the address that a name was resolved to, just before it is connected to: a name
 * cannot be one thing when it is checked and another when it is used. */
static curl_socket_t open_if_public(void *refused, curlsocktype purpose, struct curl_sockaddr *a)
{
    if (purpose != CURLSOCKTYPE_IPCXN || !dg_address_is_public(&a->addr)) {
        *(bool *)refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* ---- one exchange ---- */

static size_t take(char *data, size_t size, size_t n, void *out)
{
    return dg_buf_append(out, data, size * n) ? size * n : 0;
}

/* Asked several times a second. */
static int is_stopped(void *stop, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
                      curl_off_t up)
{
    (void)down_all, (void)down, (void)up_all, (void)up;
    return atomic_load((const atomic_bool *)stop);
}

typedef struct exchange {
    CURL *curl;
    long status;
    bool refused; /* an address that is not public */
    CURLcode code;
} exchange;

static void prepare(const dg_fetcher *f, exchange *x, CURLU *url, trust host, double seconds,
                    dg_buf *out)
{
    CURL *c = x->curl;
    f->curl_easy_setopt(c, CURLOPT_CURLU, url);
    f->curl_easy_setopt(c, CURLOPT_PROXY, ""); /* not the environment's: it would do the asking */
    f->curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    f->curl_easy_setopt(c, CURLOPT_USERAGENT, "dgemma/" DGEMMA_VERSION);
    f->curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(1e3 * seconds) + 1);
    f->curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    f->curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)(out->max - out->len));
    f->curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
    f->curl_easy_setopt(c, CURLOPT_WRITEDATA, out);
    f->curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    f->curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    f->curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, is_stopped);
    f->curl_easy_setopt(c, CURLOPT_XFERINFODATA, (void *)f->stop);
    if (host == TRUST_PUBLIC) {
        f->curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, open_if_public);
        f->curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, &x->refused);
    }
}

static bool explain(const dg_fetcher *f, const exchange *x, dg_http_error *e)
{
    if (x->refused)
        return dg_refuse(e, 400, "image_host_not_allowed", NULL,
                         "pictures are not fetched from addresses that are not public");
    if (x->code == CURLE_WRITE_ERROR || x->code == CURLE_FILESIZE_EXCEEDED)
        return dg_refuse(e, 413, "image_too_large", NULL, "a fetched picture is too large");
    if (x->code == CURLE_ABORTED_BY_CALLBACK)
        return dg_refuse(e, 503, "shutting_down", NULL, "the server is shutting down");
    if (x->code == CURLE_OPERATION_TIMEDOUT)
        return dg_refuse(e, 400, "invalid_image_url", NULL, "a picture took too long to come");
    if (x->status)
        return dg_refuse(e, 400, "invalid_image_url", NULL,
                         "a picture could not be fetched: its server answered with status %ld",
                         x->status);
    return dg_refuse(e, 400, "invalid_image_url", NULL, "a picture could not be fetched: %s",
                     f->curl_easy_strerror(x->code));
}

/* Fetches what is at *url. A redirection changes *url and leaves *out as it was. */
static bool exchange_once(const dg_fetcher *f, CURLU *url, bool *again, double until, dg_buf *out,
                          dg_http_error *e)
{
    trust host;
    if (!check_address(f, url, &host, e))
        return false;
    exchange x = {.curl = f->curl_easy_init()};
    double left = until - dg_clock_now();
    size_t before = out->len;
    const char *next = NULL;
    if (!x.curl)
        return dg_refuse(e, 503, "out_of_memory", NULL, "out of memory");
    prepare(f, &x, url, host, left > 0 ? left : 0, out);
    x.code = f->curl_easy_perform(x.curl);
    f->curl_easy_getinfo(x.curl, CURLINFO_RESPONSE_CODE, &x.status);
    f->curl_easy_getinfo(x.curl, CURLINFO_REDIRECT_URL, &next);
    *again = !x.code && next;
    bool ok = !x.code && (x.status == 200 || next);
    if (ok && next) {
        out->len = before; /* what a redirection says is of no use */
        if (f->curl_url_set(url, CURLUPART_URL, next, 0))
            ok = dg_refuse(e, 400, "invalid_image_url", NULL,
                           "a picture's address leads to one that is none");
    } else if (!ok) {
        explain(f, &x, e);
    }
    f->curl_easy_cleanup(x.curl);
    return ok;
}

bool dg_fetch(const dg_fetcher *f, const char *address, double until, dg_buf *out, dg_http_error *e)
{
    CURLU *url = f->curl_url();
    bool ok = url || dg_refuse(e, 503, "out_of_memory", NULL, "out of memory"), again = true;
    if (ok && f->curl_url_set(url, CURLUPART_URL, address, 0))
        ok = dg_refuse(e, 400, "invalid_image_url", NULL, "a picture's address is not one");
    for (int i = 0; ok && again; i++)
        ok = i <= MAX_REDIRECTS ? exchange_once(f, url, &again, until, out, e)
                                : dg_refuse(e, 400, "invalid_image_url", NULL,
                                            "a picture's address leads on and on");
    if (url)
        f->curl_url_cleanup(url);
    return ok;
}

#else

dgemma_status dg_fetcher_open(dg_fetcher **out, dg_words hosts, const atomic_bool *stop,
                              dgemma_error *err)
{
    (void)hosts, (void)stop;
    *out = NULL;
    return dg_fail(err, DGEMMA_E_UNSUPPORTED,
                   "pictures cannot be fetched: this program was built without libcurl");
}

void dg_fetcher_close(dg_fetcher *f)
{
    (void)f;
}

bool dg_fetcher_enter(dg_fetcher *f)
{
    (void)f;
    return false;
}

void dg_fetcher_leave(dg_fetcher *f)
{
    (void)f;
}

bool dg_fetch(const dg_fetcher *f, const char *url, double until, dg_buf *out, dg_http_error *e)
{
    (void)f, (void)url, (void)until, (void)out;
    return dg_refuse(e, 400, "unsupported", NULL, "this server fetches no pictures");
}

#endif

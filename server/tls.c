#include "tls.h"
#include <errno.h>
#include <gnutls/gnutls.h>
#include <string.h>
#include "base/alloc.h"

struct dg_tls {
    gnutls_certificate_credentials_t credentials;
};

dgemma_status dg_tls_open(dg_tls **out, const char *certificate, const char *key, dgemma_error *err)
{
    dg_tls *t = dg_calloc(1, sizeof *t);
    if (!t || gnutls_certificate_allocate_credentials(&t->credentials)) {
        dg_free(t);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    gnutls_datum_t cert = {(unsigned char *)certificate, (unsigned)strlen(certificate)};
    gnutls_datum_t secret = {(unsigned char *)key, (unsigned)strlen(key)};
    int code =
        gnutls_certificate_set_x509_key_mem(t->credentials, &cert, &secret, GNUTLS_X509_FMT_PEM);
    if (code < 0) {
        dg_tls_close(t);
        return dg_fail(err, DGEMMA_E_ARG,
                       "the certificate and the key are not a pair in PEM form: %s",
                       gnutls_strerror(code));
    }
    *out = t;
    return DGEMMA_OK;
}

void dg_tls_close(dg_tls *t)
{
    if (t)
        gnutls_certificate_free_credentials(t->credentials);
    dg_free(t);
}

/* A session is GnuTLS' own object; nothing else has to be kept for it. */
static gnutls_session_t inner(dg_tls_session *s)
{
    return (gnutls_session_t)(void *)s;
}

dg_tls_session *dg_tls_session_create(dg_tls *t, int fd)
{
    static unsigned char name[] = "http/1.1";
    const gnutls_datum_t protocol = {name, sizeof name - 1};
    gnutls_session_t s;
    if (gnutls_init(&s, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL))
        return NULL;
    if (gnutls_set_default_priority(s) || gnutls_alpn_set_protocols(s, &protocol, 1, 0) ||
        gnutls_credentials_set(s, GNUTLS_CRD_CERTIFICATE, t->credentials)) {
        gnutls_deinit(s);
        return NULL;
    }
    gnutls_transport_set_int(s, fd);
    return (dg_tls_session *)(void *)s;
}

void dg_tls_session_free(dg_tls_session *s)
{
    if (s)
        gnutls_deinit(inner(s));
}

dg_tls_progress dg_tls_handshake(dg_tls_session *s)
{
    int code;
    do
        code = gnutls_handshake(inner(s));
    while (code < 0 && code != GNUTLS_E_AGAIN && !gnutls_error_is_fatal(code));
    if (!code)
        return DG_TLS_DONE;
    if (code != GNUTLS_E_AGAIN)
        return DG_TLS_FAILED;
    return gnutls_record_get_direction(inner(s)) ? DG_TLS_WRITES : DG_TLS_READS;
}

static ssize_t as_errno(ssize_t n)
{
    if (n >= 0)
        return n;
    errno = n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED ? EAGAIN : EPIPE;
    return -1;
}

ssize_t dg_tls_recv(dg_tls_session *s, void *to, size_t max)
{
    return as_errno(gnutls_record_recv(inner(s), to, max));
}

ssize_t dg_tls_send(dg_tls_session *s, const void *data, size_t n)
{
    return as_errno(gnutls_record_send(inner(s), data, n));
}

void dg_tls_say_goodbye(dg_tls_session *s)
{
    gnutls_bye(inner(s), GNUTLS_SHUT_WR); /* or not, when the socket is full: it is only polite */
}

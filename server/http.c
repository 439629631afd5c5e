#include "http.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"

enum { BACKLOG = 1024, TICK_MS = 200, MAX_EVENTS = 128, ACCEPTS_AT_ONCE = 64 };

/* dg_connection speaks of events in poll's words, and epoll's are the same numbers. */
_Static_assert((int)EPOLLIN == POLLIN && (int)EPOLLOUT == POLLOUT && (int)EPOLLERR == POLLERR &&
                   (int)EPOLLHUP == POLLHUP && (int)EPOLLRDHUP == POLLRDHUP,
               "epoll and poll have the same events");

struct dg_http {
    dg_connection_shared shared;
    dg_tls *tls;
    int max_connections;
    int listen_fd, epoll_fd, wake_fd;
    bool is_accepting;   /* the listening socket is looked at */
    double accept_again; /* not before: there were no files left */
    double swept;
    dg_connection *all, *dead;
    pthread_t thread;
    bool runs;
    atomic_int n_connection;
    atomic_bool stops;

    pthread_mutex_t lock; /* for what follows */
    dg_connection *woken;
    char scratch[DG_SCRATCH_BYTES];
};

/* ---- waking ---- */

static void ring(dg_http *h)
{
    uint64_t one = 1;
    ssize_t n = write(h->wake_fd, &one, sizeof one);
    (void)n; /* full: it rings already */
}

/* An exchange's; its lock is held, so the connection is there. */
static void wake(void *connection)
{
    dg_connection *c = connection;
    dg_http *h = c->shared->loop;
    pthread_mutex_lock(&h->lock);
    bool is_first = !h->woken;
    if (!c->woken) {
        c->woken = true;
        c->next_woken = h->woken;
        h->woken = c;
    }
    pthread_mutex_unlock(&h->lock);
    if (is_first)
        ring(h);
}

static dg_connection *next_woken(dg_http *h)
{
    pthread_mutex_lock(&h->lock);
    dg_connection *c = h->woken;
    if (c) {
        h->woken = c->next_woken;
        c->woken = false;
    }
    pthread_mutex_unlock(&h->lock);
    return c;
}

static void forget_woken(dg_http *h, const dg_connection *c)
{
    pthread_mutex_lock(&h->lock);
    for (dg_connection **at = &h->woken; *at; at = &(*at)->next_woken)
        if (*at == c) {
            *at = c->next_woken;
            break;
        }
    pthread_mutex_unlock(&h->lock);
}

/* ---- connections ---- */

/* Ended, off the list, and freed when this turn is over: events of the turn may still name it. */
static void bury(dg_http *h, dg_connection *c)
{
    dg_connection_end(c);
    forget_woken(h, c);
    *(c->prev ? &c->prev->next : &h->all) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->next = h->dead;
    h->dead = c;
    atomic_fetch_sub(&h->n_connection, 1);
}

static void free_dead(dg_http *h)
{
    for (dg_connection *c; (c = h->dead);) {
        h->dead = c->next;
        dg_connection_free(c);
    }
}

static void look_for(dg_http *h, dg_connection *c)
{
    unsigned wanted = dg_connection_interest(c);
    struct epoll_event event = {.events = wanted, .data.ptr = c};
    if (wanted != c->interest && epoll_ctl(h->epoll_fd, EPOLL_CTL_MOD, c->fd, &event))
        bury(h, c);
    c->interest = wanted;
}

static void advance(dg_http *h, dg_connection *c, unsigned events)
{
    if (c->state == DG_CONNECTION_OVER)
        return; /* buried in this turn */
    dg_connection_advance(c, events);
    if (c->state == DG_CONNECTION_OVER)
        bury(h, c);
    else
        look_for(h, c);
}

/* Those that say nothing go first, then those that have been at it longest. */
static bool goes_before(const dg_connection *a, const dg_connection *b)
{
    int rank_a = dg_connection_idleness(a), rank_b = b ? dg_connection_idleness(b) : 0;
    return rank_a > rank_b || (rank_a == rank_b && rank_a && a->since < b->since);
}

static bool is_full(dg_http *h)
{
    return atomic_load(&h->n_connection) >= h->max_connections;
}

/* Who makes room for one more; NULL: all are being answered. */
static dg_connection *first_to_go(const dg_http *h)
{
    dg_connection *first = NULL;
    for (dg_connection *c = h->all; c; c = c->next)
        if (goes_before(c, first))
            first = c;
    return first;
}

/* With an answer, if a request is coming; the connection then lingers for a moment. */
static void dismiss(dg_http *h, dg_connection *c, int status, const char *code, const char *why)
{
    if (dg_connection_idleness(c) == 1 && dg_connection_refuse(c, status, code, why))
        look_for(h, c);
    else
        bury(h, c);
}

/* Makes room where there is none. One whose request is coming is told, and lingers for a moment
 * beyond the limit: it is the first to go for the next. */
static void make_room(dg_http *h)
{
    dg_connection *first = is_full(h) ? first_to_go(h) : NULL;
    if (!first)
        return;
    dismiss(h, first, 503, "too_many_connections",
            "there are too many connections, and others came after this one");
}

static void admit(dg_http *h, int fd, const struct sockaddr_storage *peer)
{
    int on = 1;
    make_room(h);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    dg_connection *c = dg_connection_create(&h->shared, fd);
    if (!c)
        return;
    c->peer = dg_address_of_socket(peer);
    c->interest = dg_connection_interest(c);
    struct epoll_event event = {.events = c->interest, .data.ptr = c};
    if (epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
        dg_connection_end(c);
        dg_connection_free(c);
        return;
    }
    c->next = h->all;
    if (c->next)
        c->next->prev = c;
    h->all = c;
    atomic_fetch_add(&h->n_connection, 1);
}

static bool has_room(dg_http *h)
{
    return !is_full(h) || first_to_go(h);
}

static void accept_some(dg_http *h)
{
    for (int i = 0; i < ACCEPTS_AT_ONCE && has_room(h); i++) {
        struct sockaddr_storage peer = {0};
        socklen_t n = sizeof peer;
        int fd = accept4(h->listen_fd, (struct sockaddr *)&peer, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            admit(h, fd, &peer);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            h->accept_again = dg_clock_now() + TICK_MS / 1e3;
            return;
        }
    }
}

/* Looks at the listening socket only while somebody could come in. */
static void set_accepting(dg_http *h, double now)
{
    bool wanted = has_room(h) && now >= h->accept_again;
    struct epoll_event event = {.events = wanted ? EPOLLIN : 0, .data.ptr = &h->listen_fd};
    if (wanted != h->is_accepting && !epoll_ctl(h->epoll_fd, EPOLL_CTL_MOD, h->listen_fd, &event))
        h->is_accepting = wanted;
}

static void sweep(dg_http *h, double now)
{
    if (now - h->swept < TICK_MS / 1e3)
        return;
    h->swept = now;
    for (dg_connection *c = h->all, *next; c; c = next) {
        next = c->next;
        if (dg_connection_is_late(c, now))
            dismiss(h, c, 408, "request_timeout", "the request took too long to arrive");
    }
}

/* ---- the thread ---- */

static void take_events(dg_http *h, const struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        void *who = events[i].data.ptr;
        uint64_t count;
        if (who == &h->listen_fd)
            accept_some(h);
        else if (who != &h->wake_fd)
            advance(h, who, events[i].events);
        else if (read(h->wake_fd, &count, sizeof count) < 0)
            continue; /* it was read already */
    }
    for (dg_connection *c; (c = next_woken(h));)
        advance(h, c, 0);
}

static void *http_main(void *http)
{
    dg_http *h = http;
    struct epoll_event events[MAX_EVENTS];
    while (!atomic_load(&h->stops)) {
        int n = epoll_wait(h->epoll_fd, events, MAX_EVENTS, TICK_MS);
        take_events(h, events, n);
        double now = dg_clock_now();
        sweep(h, now);
        free_dead(h);
        set_accepting(h, now);
    }
    while (h->all)
        bury(h, h->all);
    free_dead(h);
    return NULL;
}

/* ---- starting and stopping ---- */

static bool is_this_machine(const struct sockaddr *address)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (address->sa_family == AF_INET6) {
        memcpy(&v6, address, sizeof v6);
        return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
    }
    memcpy(&v4, address, sizeof v4);
    return address->sa_family == AF_INET && ntohl(v4.sin_addr.s_addr) >> 24 == 127;
}

/* -1: errno says why. */
static int bind_socket(const struct addrinfo *address)
{
    int on = 1;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (!bind(fd, address->ai_addr, address->ai_addrlen) && !listen(fd, BACKLOG))
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static dgemma_status bind_address(dg_http *h, const dg_http_options *opt, dgemma_error *err)
{
    char port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *address;
    snprintf(port, sizeof port, "%d", opt->port);
    int code = getaddrinfo(opt->host, port, &hints, &address);
    if (code)
        return dg_fail(err, DGEMMA_E_ARG, "host %s: %s", opt->host, gai_strerror(code));
    h->listen_fd = bind_socket(address);
    int why = errno;
    freeaddrinfo(address);
    return h->listen_fd < 0 ? dg_fail(err, DGEMMA_E_IO, "cannot listen on %s port %d: %s",
                                      opt->host, opt->port, strerror(why))
                            : DGEMMA_OK;
}

/* Who gives it keeps it too: others connect to it while this process does not run. */
static dgemma_status take_socket(dg_http *h, int fd, dgemma_error *err)
{
    int type = 0, listens = 0;
    socklen_t n_type = sizeof type, n_listens = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n_type) ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n_listens) || type != SOCK_STREAM ||
        !listens || !dg_http_port(h))
        return dg_fail(err, DGEMMA_E_ARG, "file %d, which was given, is no TCP socket that listens",
                       fd);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC))
        return dg_fail(err, DGEMMA_E_IO, "file %d, which was given: %s", fd, strerror(errno));
    return DGEMMA_OK;
}

static dgemma_status watch_sockets(dg_http *h, dgemma_error *err)
{
    struct epoll_event on_listen = {.events = EPOLLIN, .data.ptr = &h->listen_fd};
    struct epoll_event on_wake = {.events = EPOLLIN, .data.ptr = &h->wake_fd};
    h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    h->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (h->epoll_fd < 0 || h->wake_fd < 0 ||
        epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, h->listen_fd, &on_listen) ||
        epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, h->wake_fd, &on_wake))
        return dg_fail(err, DGEMMA_E_IO, "cannot watch sockets: %s", strerror(errno));
    h->is_accepting = true;
    return DGEMMA_OK;
}

dgemma_status dg_http_open(dg_http **out, const dg_http_options *opt,
                           const dg_http_handler *handler, dgemma_error *err)
{
    dg_http *h = dg_calloc(1, sizeof *h);
    if (!h)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    h->listen_fd = opt->listen_fd ? opt->listen_fd : -1;
    h->epoll_fd = h->wake_fd = -1;
    h->max_connections = opt->max_connections;
    pthread_mutex_init(&h->lock, NULL);
    dgemma_status st = DGEMMA_OK;
    if (opt->tls_certificate)
        st = dg_tls_open(&h->tls, opt->tls_certificate, opt->tls_key, err);
    if (!st)
        st = opt->listen_fd ? take_socket(h, opt->listen_fd, err) : bind_address(h, opt, err);
    if (!st)
        st = watch_sockets(h, err);
    if (st) {
        dg_http_free(h);
        return st;
    }
    h->shared = (dg_connection_shared){.handler = handler,
                                       .tls = h->tls,
                                       .idle_seconds = opt->idle_seconds,
                                       .receive_seconds = opt->receive_seconds,
                                       .max_unread_bytes = opt->max_unread_bytes,
                                       .scratch = h->scratch,
                                       .wake = wake,
                                       .loop = h};
    *out = h;
    return DGEMMA_OK;
}

dgemma_status dg_http_start(dg_http *h, dgemma_error *err)
{
    h->runs = pthread_create(&h->thread, NULL, http_main, h) == 0;
    return h->runs ? DGEMMA_OK : dg_fail(err, DGEMMA_E_NOMEM, "cannot start the server's threads");
}

typedef union own_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} own_address;

/* Of the family AF_UNSPEC: there is none. */
static own_address own(const dg_http *h)
{
    own_address a = {0};
    socklen_t n = sizeof a;
    if (getsockname(h->listen_fd, &a.any, &n) || n > sizeof a)
        return (own_address){0};
    return a;
}

bool dg_http_is_local(const dg_http *h)
{
    own_address a = own(h);
    return is_this_machine(&a.any);
}

int dg_http_port(const dg_http *h)
{
    own_address a = own(h);
    if (a.any.sa_family == AF_INET6)
        return ntohs(a.v6.sin6_port);
    return a.any.sa_family == AF_INET ? ntohs(a.v4.sin_port) : 0;
}

int dg_http_n_connection(dg_http *h)
{
    return atomic_load(&h->n_connection);
}

void dg_http_stop(dg_http *h)
{
    if (!h->runs)
        return;
    atomic_store(&h->stops, true);
    ring(h);
    pthread_join(h->thread, NULL);
    h->runs = false;
}

void dg_http_free(dg_http *h)
{
    if (!h)
        return;
    int fds[] = {h->listen_fd, h->epoll_fd, h->wake_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    dg_tls_close(h->tls);
    pthread_mutex_destroy(&h->lock);
    dg_free(h);
}

/* The clock's eye on everything: clients that went away, connections that say nothing, answers that
 * take too long, streams that were silent. */
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include "base/clock.h"
#include "server_internal.h"

enum { TICK_MS = 200 };

/* While a connection is suspended, the HTTP library does not look at it; so we do. The socket is
 * open as long as the call is listed. */
static bool hung_up(const dg_call *c)
{
    struct pollfd p = {.fd = c->peer->fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* Proxies give up on a stream that has nothing to say for long. */
static bool is_silent(dg_call *c, double now)
{
    pthread_mutex_lock(&c->x.lock);
    bool silent = c->x.streaming && !c->x.closed && c->x.sent == c->x.out.len &&
                  now - c->x.wrote > c->server->opt.ping_seconds;
    pthread_mutex_unlock(&c->x.lock);
    return silent;
}

static void watch_calls(dg_server *s, double now)
{
    for (dg_call *c = s->calls; c; c = c->next) {
        if (!c->handed_over || c->gone || c->cancel)
            continue;
        if (c->peer && hung_up(c))
            dg_call_cancel(c, DG_CANCEL_HANGUP);
        else if (now - c->arrived > s->opt.answer_seconds)
            dg_call_cancel(c, DG_CANCEL_TIMEOUT);
        else if (is_silent(c, now))
            dg_call_ping(c);
    }
}

/* The HTTP library closes what it finds shut down. */
static void watch_peers(dg_server *s, double now)
{
    pthread_mutex_lock(&s->peer_lock);
    for (dg_peer *p = s->peers; p; p = p->next)
        if (p->state != DG_PEER_SERVED && now - p->since > s->opt.receive_seconds)
            shutdown(p->fd, SHUT_RDWR);
    pthread_mutex_unlock(&s->peer_lock);
}

/* Those that say nothing go first, then those that have been at it longest. */
static bool goes_before(const dg_peer *a, const dg_peer *b)
{
    return !b || a->state < b->state || (a->state == b->state && a->since < b->since);
}

void dg_watch_crowd(dg_server *s)
{
    dg_peer *first = NULL;
    if (s->n_peer < s->opt.max_connections / 8 * 7)
        return;
    for (dg_peer *p = s->peers; p; p = p->next)
        if (p->state != DG_PEER_SERVED && goes_before(p, first))
            first = p;
    if (!first)
        return;
    first->state = DG_PEER_SERVED; /* not again */
    shutdown(first->fd, SHUT_RDWR);
}

void *dg_watch_main(void *server)
{
    dg_server *s = server;
    for (bool quit = false; !quit;) {
        nanosleep(&(struct timespec){.tv_nsec = TICK_MS * 1000000L}, NULL);
        double now = dg_clock_now();
        pthread_mutex_lock(&s->lock);
        quit = s->quit;
        watch_calls(s, now);
        pthread_mutex_unlock(&s->lock);
        watch_peers(s, now);
    }
    return NULL;
}

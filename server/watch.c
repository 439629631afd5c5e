#include "watch.h"
#include <time.h>
#include "base/clock.h"

enum { TICK_MS = 200 };

/* Proxies give up on a stream that has nothing to say for long. One that waits for its model is not
 * open yet, and will be for this. */
static bool is_silent(dg_call *c, double now)
{
    pthread_mutex_lock(&c->x.lock);
    const dg_exchange *x = &c->x;
    bool quiet = x->streaming ? !x->closed && x->sent == x->out.len : c->awaits && !x->status;
    double since = x->streaming ? x->wrote : c->arrived;
    pthread_mutex_unlock(&c->x.lock);
    return quiet && now - since > c->server->opt.ping_seconds;
}

static void watch_calls(dg_server *s, double now)
{
    for (dg_call *c = s->calls; c; c = c->next) {
        if (!c->handed_over || c->gone || c->cancel)
            continue;
        if (now - c->arrived > s->opt.answer_seconds)
            dg_call_cancel(c, DG_CANCEL_TIMEOUT);
        else if (is_silent(c, now))
            dg_call_ping(c);
    }
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
    }
    return NULL;
}

#include "call_body.h"
#include <sys/random.h>
#include "json_body.h"
#include "picture_links.h"

/* Small enough to be a number in every JSON library. */
static uint64_t random_seed(void)
{
    uint32_t seed = 0;
    return getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed ? seed : 0;
}

bool dg_call_hold(dg_call *c, size_t n, dg_http_error *e)
{
    dg_server *s = c->server;
    return atomic_fetch_add(&s->body_bytes, n) + n <= s->opt.max_all_body_bytes ||
           dg_refuse(e, 413, "body_too_large", NULL, "there are too many large requests at once");
}

/* Fetched pictures take room, like those that came with the body. */
static bool follow_links(dg_call *c, json_t *root, dg_http_error *e)
{
    dg_server *s = c->server;
    const dg_link_limits limits = {s->opt.max_body_bytes, s->opt.max_images, s->opt.fetch_seconds};
    size_t n = 0;
    if (!dg_links_follow(root, s->fetcher, &limits, &n, e))
        return false;
    c->n_fetched += n;
    return dg_call_hold(c, n, e);
}

json_t *dg_call_body(dg_call *c, dg_http_error *e)
{
    json_t *read = c->root;
    c->root = NULL;
    if (read)
        return read;
    return dg_json_body(c->body.data ? c->body.data : "", c->body.len, e);
}

void dg_call_forget_body(dg_call *c)
{
    atomic_fetch_sub(&c->server->body_bytes, c->body.len + c->n_fetched);
    dg_buf_clear(&c->body);
    c->n_fetched = 0;
    if (!c->generation)
        dg_call_forget_input(c);
}

bool dg_call_chat(dg_call *c, dg_read_fn *read, dg_chat *out, dg_http_error *e)
{
    json_t *root = dg_call_body(c, e);
    if (!root)
        return false;
    if ((c->route->prepare && !c->route->prepare(c, root, e)) || !follow_links(c, root, e)) {
        json_decref(root);
        return false;
    }
    return read(out, root, &c->hold.model->limits, random_seed(), e);
}

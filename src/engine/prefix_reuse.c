#include "engine/prefix_reuse.h"
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

/* Below so many tokens a place where prompts parted is not worth keeping, or waiting for. */
enum { MIN_PARTED = DG_PAGE, MIN_WAIT = 4 * DG_PAGE };

static bool append(dg_prefix_reuse *t, const int32_t *token, int n)
{
    if (n > t->cap - t->n) {
        int cap = t->n + dg_max(n, t->n / 2);
        int32_t *more = dg_array_resize(t->token, (size_t)cap, sizeof *more);
        if (!more)
            return false;
        t->token = more;
        t->cap = cap;
    }
    memcpy(t->token + t->n, token, (size_t)n * sizeof *token);
    t->n += n;
    return true;
}

/* In ascending order, each once; those that are encoded already do not count. */
static void add_mark(dg_prefix_reuse *t, int at, int n_found)
{
    int i = t->n_mark;
    if (at <= n_found || t->n_mark == DG_PREFIX_MARKS)
        return;
    for (int k = 0; k < t->n_mark; k++)
        if (t->mark[k] == at)
            return;
    for (; i > 0 && t->mark[i - 1] > at; i--)
        t->mark[i] = t->mark[i - 1];
    t->mark[i] = at;
    t->n_mark++;
}

/* Where the second and the last turn begin. */
static void mark_turns(dg_prefix_reuse *t, int turn_token, int n_found)
{
    int n_turn = 0, last = 0;
    for (int i = 0; turn_token >= 0 && i < t->n; i++) {
        if (t->token[i] != turn_token)
            continue;
        last = i;
        if (++n_turn == 2)
            add_mark(t, i, n_found);
    }
    add_mark(t, last, n_found);
}

int dg_prefix_reuse_begin(dg_prefix_reuse *t, dg_prefix_cache *cache, dg_block_loop *loop,
                          const dg_prefix *prompt, int turn_token)
{
    *t = (dg_prefix_reuse){.pictures = prompt->pictures, .salt = prompt->salt};
    if (!cache || !append(t, prompt->token, prompt->n_token))
        return 0;
    t->cache = cache;
    int parted;
    dg_prefix_find(cache, prompt, &loop->seq, &parted);
    int n = t->n_found = loop->n_encoded = loop->seq.n_token;
    mark_turns(t, turn_token, n);
    if (parted - n >= MIN_PARTED)
        add_mark(t, parted, n);
    add_mark(t, prompt->n_token, n);
    return n;
}

void dg_prefix_reuse_clear(dg_prefix_reuse *t)
{
    dg_free(t->token);
    *t = (dg_prefix_reuse){0};
}

bool dg_prefix_reuse_worth_waiting(dg_prefix_reuse *t, const dg_block_loop *loop,
                                   const dg_prefix *prompt)
{
    if (!t->cache || loop->block > 0 || loop->n_encoded == loop->n_pending)
        return false;
    int n = dg_prefix_common(&(dg_prefix){t->token, t->n, t->pictures, t->salt}, prompt);
    if (n - t->n_found < MIN_WAIT || n <= loop->seq.n_token)
        return false;
    add_mark(t, n, loop->seq.n_token);
    for (int i = 0; i < t->n_mark; i++)
        if (t->mark[i] == n)
            return true;
    return false; /* there was no room for the mark */
}

static void keep(const dg_prefix_reuse *t, const dg_kv_seq *seq, int n)
{
    dg_prefix_keep(t->cache, &(dg_prefix){t->token, n, t->pictures, t->salt}, seq);
}

void dg_prefix_reuse_pass(dg_prefix_reuse *t, const dg_block_loop *loop, const dg_work *w)
{
    if (!t->cache)
        return;
    if (loop->block > 0 && !append(t, w->token, w->n_token)) {
        dg_prefix_reuse_clear(t); /* without its tokens nothing can be found again */
        return;
    }
    int n = 0;
    while (n < t->n_mark && t->mark[n] <= loop->seq.n_token)
        keep(t, &loop->seq, t->mark[n++]);
    memmove(t->mark, t->mark + n, (size_t)(t->n_mark - n) * sizeof *t->mark);
    t->n_mark -= n;
}

void dg_prefix_reuse_end(dg_prefix_reuse *t, const dg_block_loop *loop)
{
    if (t->cache && loop->seq.n_token > 0)
        keep(t, &loop->seq, loop->seq.n_token);
}

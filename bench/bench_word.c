/* What the word over a canvas costs, on one thread: 256 positions of the true vocabulary, held to
 * an object of 12 and of 100 members. The most probable text alone, and all of it: the masses,
 * shares and entropies too, as every step has them.
 *
 *     bench_word [STEPS]     8; one layer of the true shape computes what each step looks at
 *
 * Fails where the text alone takes more than 0.5 and 1.3 ms. */
#define dg_word_solve solve_all
#include "constraint/word.c" /* the path alone is no function of its own there */
#undef dg_word_solve
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/common.h"
#include "dgemma.h"
#include "dgemma_tools.h"

enum { MOST_STEPS = 64, ROUNDS = 5 };

static struct {
    double path[MOST_STEPS], all[MOST_STEPS]; /* seconds, the best of some rounds */
    size_t n;
    bool differs; /* the two do not agree on the text */
    dg_word *other;
} found;

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Forwards without sums: what has no chance of a better text goes, whatever its mass. */
static dgemma_status find_path(dg_word *w, const dg_word_graph *g, const dg_word_options *o,
                               dgemma_error *err)
{
    const double any_mass = 100; /* e to that is more than all of it */
    dgemma_status st = DGEMMA_OK;
    w->n_link = w->n_node = w->n_weight = 0;
    set_bounds(w, g, o);
    w->node[0] = (node){.state = o->start, .fits = true};
    w->n_node = 1;
    for (size_t i = 0; i < w->n && !st; i++) {
        size_t first = w->first_node[i + 1] = w->n_node;
        w->first_weight[i] = w->n_weight;
        for (size_t k = w->first_node[i]; k < first && !st; k++)
            st = follow(w, g, i, (uint32_t)k, err);
        size_t n = st ? 0 : mark_hopeless(w, i, w->least_mass - any_mass);
        if (!st && o->beam && n > o->beam)
            st = mark_beam(w, first, n, o->beam, o->known ? &o->known[i] : NULL, err);
        if (!st)
            st = sweep(w, i, err);
    }
    w->first_node[w->n + 1] = w->n_node;
    if (!st)
        trace(w);
    return st;
}

/* Stands in for the library's: solves as that does, and times both. */
dgemma_status dg_word_solve(dg_word *w, const dg_word_graph *graph, const dg_word_options *options,
                            dgemma_error *err);
dgemma_status dg_word_solve(dg_word *w, const dg_word_graph *graph, const dg_word_options *options,
                            dgemma_error *err)
{
    dgemma_status st = solve_all(w, graph, options, err); /* edges are looked up once */
    if (!st && !found.other)
        st = dg_word_create(&found.other, err);
    if (st || found.n == MOST_STEPS)
        return st;
    double path = INFINITY, all = INFINITY;
    for (int i = 0; i < ROUNDS && !st; i++) {
        double start = thread_seconds();
        st = solve_all(found.other, graph, options, err);
        all = fmin(all, thread_seconds() - start);
        start = thread_seconds();
        if (!st)
            st = find_path(found.other, graph, options, err);
        path = fmin(path, thread_seconds() - start);
    }
    found.differs |= !st && dg_word_score(found.other) != dg_word_score(w);
    found.path[found.n] = path;
    found.all[found.n++] = all;
    return st;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, ascending);
    return v[n / 2];
}

static bool ignore(void *user, const dgemma_bench_result *result)
{
    (void)user;
    (void)result;
    return true;
}

/* Members are strings, integers, booleans and numbers in turn, all required. */
static int schema_of(char *out, size_t size, int n)
{
    static const char *const kinds[] = {"string", "integer", "boolean", "number"};
    int len = snprintf(out, size, "{\"additionalProperties\": false, \"properties\": {");
    for (int i = 0; i < n; i++)
        len += snprintf(out + len, size - (size_t)len, "%s\"p%d\": {\"type\": \"%s\"}",
                        i ? ", " : "", i, kinds[i % 4]);
    len += snprintf(out + len, size - (size_t)len, "}, \"type\": \"object\", \"required\": [");
    for (int i = 0; i < n; i++)
        len += snprintf(out + len, size - (size_t)len, "%s\"p%d\"", i ? ", " : "", i);
    return len + snprintf(out + len, size - (size_t)len, "]}");
}

static dgemma_status measure(int n_member, int n_step, dgemma_error *err)
{
    char schema[8192];
    dgemma_bench_options opt = dgemma_bench_defaults();
    dgemma_constraint *c = NULL;
    dgemma_constraint_options how = {.kind = DGEMMA_CONSTRAINT_JSON_SCHEMA, .text = schema};
    how.text_len = (size_t)schema_of(schema, sizeof schema, n_member);
    dgemma_status st = dgemma_constraint_create(&c, &how, err);
    opt.engine.device = "cpu";
    opt.synthetic = "Q4_K_M";
    opt.n_layer = 1;
    opt.prompt = -1;
    opt.contexts = (dgemma_bench_list){.n = 1, .at = {64}};
    opt.n_steps = n_step;
    opt.answer = true;
    opt.no_rates = true;
    opt.constraint = c;
    opt.on_result = ignore;
    if (!st)
        st = dgemma_bench(&opt, err);
    dgemma_constraint_free(c);
    return st;
}

int main(int argc, char **argv)
{
    static const struct {
        int n_member;
        double most; /* ms */
    } sizes[] = {{12, 0.5}, {100, 1.3}};
    int n_step = argc > 1 ? atoi(argv[1]) : 8;
    dgemma_error err = {0};
    printf("members  the text alone (allowed)   with masses and entropies\n");
    for (size_t i = 0; i < DG_COUNT(sizes); i++) {
        found.n = 0;
        if (measure(sizes[i].n_member, n_step, &err) || !found.n || found.differs) {
            fprintf(stderr, "bench_word: %s\n", err.msg[0] ? err.msg : "the texts differ");
            return 1;
        }
        double path = 1e3 * median(found.path, found.n), all = 1e3 * median(found.all, found.n);
        printf("%7d  %.3f ms (%.1f%s)              %.3f ms     %zu steps\n", sizes[i].n_member,
               path, sizes[i].most, path > sizes[i].most ? ", which it is over" : "", all, found.n);
        fflush(stdout);
    }
    dg_word_free(found.other);
    return 0;
}

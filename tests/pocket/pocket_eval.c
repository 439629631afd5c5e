/* pocket_eval: what a model can do, by the prompts of an evaluation.
 *
 *     pocket_eval -m MODEL [OPTION…] FILE…
 *
 * Asks each prompt (prompts.h) with the model's own sampler and a seed made of its id, checks the
 * answer (checks.h), and prints a line a family. A family passes with 95 % of its answers right or
 * what its prompts say, 97 % of its tool calls, 98 % of its JSON readable. Ends with status 1 when
 * one does not.
 *
 *     --family F              this one only
 *     --limit N               N prompts of each family, evenly spread
 *     --slack N               N answers more may be wrong: for a small sample
 *     --threads N, --kv T, --device D   as for dgemma run
 *     --parallel N            requests in flight
 *     --max-tokens N          of an answer (1024)
 *     --settled N             send and pin what has held for N steps
 *     --grammars DIR          of stories and couplets (models/pocket/grammar)
 *     --failures FILE         JSONL: the wrong answers, and why
 *     --record FILE           JSONL: the tokens of prompts and answers, for compare_transformers.py
 *     --held own|renamed      hold answers to schemas and tools, to see what that costs (held.h)
 *     --no-self-conditioning  then all of it again without, to compare the steps it takes */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/kv_type.h"
#include "engine/engine.h"
#include "engine/prompt.h"
#include "pocket/ask.h"

enum { MIN_RIGHT = 95, MIN_CALLS = 97, MIN_PARSED = 98, MAX_FAMILIES = 64, MAX_PARALLEL = 256 };

typedef struct share {
    int n, of;
} share;

typedef struct family {
    const char *name;
    int least; /* percent of its answers that must be right */
    share right, calls, parsed;
    long n_block, n_step, n_token, n_first;
} family;

typedef struct evaluation {
    const char *model, *only, *grammars, *failures_path, *record_path;
    int limit, slack, n_thread, without;
    dgemma_kv_type kv_type;
    const char *profile; /* of the CPU; NULL: its own choice */
    const char *device;  /* NULL: a GPU where there is one */
    ask_options ask;
    dgemma_engine *engine;
    pocket_prompts prompts;
    FILE *failures, *record;
    family families[MAX_FAMILIES];
    int n_family;
    size_t n_asked;
} evaluation;

/* ---- taking answers in ---- */

static family *family_of(evaluation *ev, const pocket_prompt *p)
{
    for (int i = 0; i < ev->n_family; i++)
        if (strcmp(ev->families[i].name, p->family) == 0)
            return &ev->families[i];
    if (ev->n_family == MAX_FAMILIES)
        return NULL;
    ev->families[ev->n_family] =
        (family){.name = p->family, .least = p->least ? p->least : MIN_RIGHT};
    return &ev->families[ev->n_family++];
}

static void add(share *s, bool yes)
{
    s->n += yes;
    s->of++;
}

/* The last thing that was asked, for people who read about the failure. */
static const char *last_question(const pocket_prompt *p)
{
    const json_t *m = json_array_get(p->messages, json_array_size(p->messages) - 1);
    const json_t *content = json_object_get(m, "content");
    const char *text = json_string_value(content);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const char *part = json_string_value(json_object_get(json_array_get(content, i), "text"));
        text = part ? part : text;
    }
    return text ? text : "";
}

static dgemma_status write_line(FILE *out, json_t *line, dgemma_error *err)
{
    bool ok = line && json_dumpf(line, out, JSON_COMPACT) == 0 && fputc('\n', out) != EOF;
    json_decref(line);
    return ok ? DGEMMA_OK : dg_fail(err, DGEMMA_E_IO, "cannot write a record");
}

static dgemma_status write_failure(FILE *out, const asked *a, const char *why, dgemma_error *err)
{
    return write_line(out,
                      json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:O, s:O}", "family",
                                a->prompt->family, "id", a->prompt->id, "why", why, "question",
                                last_question(a->prompt), "text", a->answer.text, "thought",
                                a->answer.thought, "calls", a->answer.calls, "check",
                                a->prompt->check),
                      err);
}

static json_t *json_ids(const int32_t *ids, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < n; i++)
        json_array_append_new(array, json_integer(ids[i]));
    return array;
}

/* The prompt's tokens are made once more: a request does not show them. */
static dgemma_status write_record(evaluation *ev, const asked *a, dgemma_error *err)
{
    dgemma_request_options o;
    dgemma_prompt *prompt = NULL;
    char *messages, *tools;
    dgemma_status st =
        ask_prepare(&o, ev->engine, a->prompt, a->messages, &ev->ask, &messages, &tools, err);
    if (st)
        return st;
    st = dg_prompt_build(&prompt, ev->engine, &o, ev->engine->n_context, err);
    if (!st)
        st = write_line(
            ev->record,
            json_pack("{s:s, s:s, s:s, s:o, s:o, s:b, s:i, s:i, s:i}", "family", a->prompt->family,
                      "id", a->prompt->id, "text", a->answer.text, "prompt",
                      json_ids(prompt->tokens.ids, prompt->tokens.n), "tokens",
                      json_ids(a->tokens, a->n_tokens), "stopped",
                      a->stats.end == DGEMMA_END_STOP || a->stats.end == DGEMMA_END_TOOL_CALLS,
                      "max_tokens", ev->ask.max_tokens, "steps", a->stats.n_steps, "canvases",
                      a->stats.n_blocks),
            err);
    dg_prompt_release(prompt);
    free(messages);
    free(tools);
    return st;
}

static void show_progress(evaluation *ev)
{
    ev->n_asked++;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%zu of %zu%s", ev->n_asked, ev->prompts.n,
                ev->n_asked == ev->prompts.n ? "\n" : "");
}

static dgemma_status take(void *user, const asked *a, dgemma_error *err)
{
    evaluation *ev = user;
    family *f = family_of(ev, a->prompt);
    if (!f)
        return dg_fail(err, DGEMMA_E_LIMIT, "more than %d families", MAX_FAMILIES);
    pocket_verdict v;
    dgemma_status st = pocket_check(&v, a->prompt->check, &a->answer, ev->grammars, err);
    if (st)
        return dg_fail_prefix(err, st, a->prompt->id);
    if (a->prompt->n_prompt && a->prompt->n_prompt != a->stats.n_prompt) {
        v.right = false;
        snprintf(v.why, sizeof v.why, "the prompt came to %d tokens, it was written as %d",
                 a->stats.n_prompt, a->prompt->n_prompt);
    }
    const char *kind = json_string_value(json_object_get(a->prompt->check, "kind"));
    add(&f->right, v.right);
    if (strcmp(kind, "calls") == 0)
        add(&f->calls, v.right);
    if (strcmp(kind, "json") == 0)
        add(&f->parsed, v.parsed);
    f->n_block += a->stats.n_blocks;
    f->n_step += a->stats.n_steps;
    f->n_first += a->n_first;
    f->n_token += a->stats.n_output;
    show_progress(ev);
    if (!v.right && ev->failures)
        st = write_failure(ev->failures, a, v.why, err);
    if (!st && ev->record)
        st = write_record(ev, a, err);
    return st;
}

/* ---- the report ---- */

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static void print_share(const share *s)
{
    if (s->of)
        printf("%8.1f", 100 * ratio(s->n, s->of));
    else
        printf("%8s", "-");
}

static void print_family(const family *f)
{
    printf("%-19s%6d%7d", f->name, f->right.of, f->right.n);
    print_share(&f->right);
    print_share(&f->calls);
    print_share(&f->parsed);
    printf("%10ld%14.2f%13.2f%13.2f\n", f->n_block, ratio((double)f->n_step, (double)f->n_block),
           ratio((double)f->n_token, (double)f->n_step),
           ratio((double)f->n_first, (double)f->right.of));
}

static void print_table(const evaluation *ev)
{
    family all = {.name = "all"};
    printf("%-19s%6s%7s%8s%8s%8s%10s%14s%13s%13s\n", "family", "n", "right", "%", "calls %",
           "JSON %", "canvases", "steps/canvas", "tokens/step", "to the first");
    for (int i = 0; i < ev->n_family; i++) {
        const family *f = &ev->families[i];
        print_family(f);
        const share *from[] = {&f->right, &f->calls, &f->parsed};
        share *to[] = {&all.right, &all.calls, &all.parsed};
        for (size_t k = 0; k < DG_COUNT(to); k++) {
            to[k]->n += from[k]->n;
            to[k]->of += from[k]->of;
        }
        all.n_block += f->n_block;
        all.n_step += f->n_step;
        all.n_first += f->n_first;
        all.n_token += f->n_token;
    }
    print_family(&all);
}

/* True when enough of them are right. */
static bool holds(const evaluation *ev, const family *f, const share *s, int percent,
                  const char *what)
{
    if (100 * (s->n + ev->slack) >= percent * s->of)
        return true;
    printf("FAILED: %s: %.1f %% %s, wanted %d %%\n", f->name, 100 * ratio(s->n, s->of), what,
           percent);
    return false;
}

/* How many families fall short. */
static int count_failed(const evaluation *ev)
{
    int n_failed = 0;
    for (int i = 0; i < ev->n_family; i++) {
        const family *f = &ev->families[i];
        bool ok = holds(ev, f, &f->right, f->least, "right");
        ok = holds(ev, f, &f->calls, MIN_CALLS, "of the calls right") && ok;
        ok = holds(ev, f, &f->parsed, MIN_PARSED, "readable as JSON") && ok;
        n_failed += !ok;
    }
    return n_failed;
}

/* ---- the run ---- */

static dgemma_status ask_once(evaluation *ev, dgemma_error *err)
{
    ev->n_family = 0;
    ev->n_asked = 0;
    dgemma_status st = ask_all(ev->engine, &ev->prompts, &ev->ask, take, ev, err);
    if (!st)
        print_table(ev);
    return st;
}

/* The second time is for the steps alone: what it gets wrong is neither written nor counted. */
static dgemma_status ask_without(evaluation *ev, dgemma_error *err)
{
    evaluation without = *ev;
    without.failures = without.record = NULL;
    printf("\nwithout self-conditioning\n");
    ev->engine->no_self_conditioning = true;
    dgemma_status st = ask_once(&without, err);
    ev->engine->no_self_conditioning = false;
    return st;
}

static dgemma_status open_output(FILE **f, const char *path, dgemma_error *err)
{
    if (path && !(*f = fopen(path, "w")))
        return dg_fail(err, DGEMMA_E_IO, "%s cannot be written", path);
    return DGEMMA_OK;
}

static dgemma_status open_all(evaluation *ev, char **files, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    for (; !st && *files; files++)
        st = pocket_prompts_read(&ev->prompts, *files, err);
    if (st)
        return st;
    pocket_prompts_select(&ev->prompts, ev->only, (size_t)ev->limit);
    if (!ev->prompts.n)
        return dg_fail(err, DGEMMA_E_ARG, "no prompt to ask");
    dgemma_engine_options opt = dgemma_engine_defaults();
    opt.model_path = ev->model;
    opt.n_threads = ev->n_thread;
    opt.kv_type = ev->kv_type;
    opt.profile = ev->profile;
    opt.device = ev->device;
    st = dgemma_engine_open(&ev->engine, &opt, err);
    if (!st)
        st = open_output(&ev->failures, ev->failures_path, err);
    return st ? st : open_output(&ev->record, ev->record_path, err);
}

static void close_all(evaluation *ev)
{
    dgemma_engine_close(ev->engine);
    pocket_prompts_clear(&ev->prompts);
    if (ev->failures)
        fclose(ev->failures);
    if (ev->record)
        fclose(ev->record);
}

/* ---- options ---- */

static int usage(void)
{
    fputs("usage: pocket_eval -m MODEL [--family F] [--limit N] [--slack N] [--threads N] "
          "[--kv bf16|f32|q8_0|fp8] [--profile integer|float]\n       [--device D] [--parallel N] "
          "[--max-tokens N] "
          "[--settled N] [--grammars DIR] "
          "[--failures "
          "FILE] [--record FILE]\n       [--held own|renamed] [--no-self-conditioning] FILE...\n",
          stderr);
    return 2;
}

static bool read_number(int *n, const char *text, int least, int most)
{
    char *end;
    long value = strtol(text, &end, 10);
    *n = (int)value;
    return *text && !*end && value >= least && value <= most;
}

static bool read_held(evaluation *ev, const char *text)
{
    ev->ask.held = strcmp(text, "own") == 0       ? HELD_TO_OWN
                   : strcmp(text, "renamed") == 0 ? HELD_TO_RENAMED
                                                  : HELD_TO_NOTHING;
    return ev->ask.held != HELD_TO_NOTHING;
}

static bool read_options(evaluation *ev, int argc, char **argv)
{
    static const struct option names[] = {
        {"model", 1, NULL, 'm'},
        {"family", 1, NULL, 'f'},
        {"limit", 1, NULL, 'l'},
        {"slack", 1, NULL, 's'},
        {"threads", 1, NULL, 't'},
        {"kv", 1, NULL, 'k'},
        {"profile", 1, NULL, 'q'},
        {"device", 1, NULL, 'd'},
        {"parallel", 1, NULL, 'p'},
        {"max-tokens", 1, NULL, 'n'},
        {"settled", 1, NULL, 'e'},
        {"grammars", 1, NULL, 'g'},
        {"failures", 1, NULL, 'w'},
        {"record", 1, NULL, 'r'},
        {"held", 1, NULL, 'c'},
        {"no-self-conditioning", 0, NULL, 'o'},
        {0},
    };
    const int many = 1 << 20;
    bool ok = true;
    for (int c; ok && (c = getopt_long(argc, argv, "m:", names, NULL)) != -1;) {
        switch (c) {
        case 'm':
            ev->model = optarg;
            break;
        case 'f':
            ev->only = optarg;
            break;
        case 'g':
            ev->grammars = optarg;
            break;
        case 'w':
            ev->failures_path = optarg;
            break;
        case 'r':
            ev->record_path = optarg;
            break;
        case 'd':
            ev->device = optarg;
            break;
        case 'q':
            ev->profile = optarg;
            break;
        case 'o':
            ev->without = true;
            break;
        case 'c':
            ok = read_held(ev, optarg);
            break;
        case 'k':
            ok = dg_kv_type_named(&ev->kv_type, optarg);
            break;
        case 'l':
            ok = read_number(&ev->limit, optarg, 1, many);
            break;
        case 's':
            ok = read_number(&ev->slack, optarg, 0, many);
            break;
        case 't':
            ok = read_number(&ev->n_thread, optarg, 0, 1024);
            break;
        case 'p':
            ok = read_number(&ev->ask.parallel, optarg, 1, MAX_PARALLEL);
            break;
        case 'n':
            ok = read_number(&ev->ask.max_tokens, optarg, 1, many);
            break;
        case 'e':
            ok = read_number(&ev->ask.settled, optarg, 1, 48);
            break;
        default:
            ok = false;
        }
    }
    return ok && ev->model && optind < argc;
}

int main(int argc, char **argv)
{
    evaluation ev = {.grammars = "models/pocket/grammar",
                     .ask = {.parallel = 1, .max_tokens = 1024}};
    if (!read_options(&ev, argc, argv))
        return usage();
    dgemma_error err = {0};
    dgemma_status st = open_all(&ev, argv + optind, &err);
    if (!st)
        st = ask_once(&ev, &err);
    if (!st && ev.without)
        st = ask_without(&ev, &err);
    int n_failed = 0;
    if (st)
        fprintf(stderr, "pocket_eval: %s\n", err.msg);
    else {
        n_failed = count_failed(&ev);
        printf("%d passed, %d failed, 0 skipped\n", ev.n_family - n_failed, n_failed);
    }
    close_all(&ev);
    return st ? 2 : n_failed > 0;
}

/* The library from several threads: submit, wait, cancel, step callbacks, stop strings, thinking;
 * and what goes wrong. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/alloc.h"
#include "dgemma.h"
#include "dgemma_tools.h"
#include "engine/block_loop.h"
#include "suites.h"
#include "support/cpu_engine.h"
#include "support/record_events.h"
#include "support/tiny_model.h"

static const char model_path[] = "tests/fixtures/golden/sampler_finishes/model";

static dgemma_engine *open_with(dgemma_engine_options opt)
{
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    opt.model_path = model_path;
    ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    return e;
}

static dgemma_engine *open_engine(const char *chat_template)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.chat_template = chat_template;
    return open_with(opt);
}

/* What a request said, as much as is compared. */
typedef struct said {
    char text[16384], thinking[16384];
    size_t n_text, n_thinking;
    int n_call;
    dgemma_stats stats;
    dgemma_status status;
    char error[512];
} said;

static void listen(dgemma_request *r, said *s)
{
    memset(s, 0, sizeof *s);
    for (dgemma_event e; dgemma_request_wait(r, &e, -1);) {
        if (e.kind == DGEMMA_EVENT_TEXT) {
            memcpy(s->text + s->n_text, e.text, e.text_len);
            s->n_text += e.text_len;
        } else if (e.kind == DGEMMA_EVENT_THINKING) {
            memcpy(s->thinking + s->n_thinking, e.text, e.text_len);
            s->n_thinking += e.text_len;
        } else if (e.kind == DGEMMA_EVENT_TOOL_CALL)
            s->n_call++;
        else if (e.kind == DGEMMA_EVENT_END) {
            s->stats = e.stats;
            s->status = e.status;
            snprintf(s->error, sizeof s->error, "%s", e.text ? e.text : "");
        }
    }
    dgemma_event none;
    ck_assert(!dgemma_request_wait(r, &none, 0)); /* the end was delivered */
    dgemma_request_free(r);
}

static dgemma_request *submit(dgemma_engine *e, const dgemma_request_options *opt)
{
    dgemma_request *r = NULL;
    dgemma_error err = {0};
    ck_assert_msg(dgemma_request_submit(&r, e, opt, &err) == DGEMMA_OK, "%s", err.msg);
    return r;
}

/* ---- threads ---- */

enum { N_THREAD = 4, N_EACH = 3 };

typedef struct client {
    dgemma_engine *engine;
    said said[N_EACH];
    int index;
} client;

static void *client_main(void *arg)
{
    client *c = arg;
    for (int i = 0; i < N_EACH; i++) {
        dgemma_request_options opt = dgemma_request_defaults(c->engine);
        opt.chat_prompt = "How are you?";
        opt.max_tokens = 40;
        opt.seed = (uint64_t)i;
        opt.drafts = c->index % 2;
        listen(submit(c->engine, &opt), &c->said[i]);
    }
    return NULL;
}

START_TEST(many_threads_share_an_engine)
{
    dgemma_engine *e = open_engine(NULL);
    static client c[N_THREAD];
    pthread_t t[N_THREAD];
    for (int i = 0; i < N_THREAD; i++) {
        c[i] = (client){.engine = e, .index = i};
        ck_assert_int_eq(pthread_create(&t[i], NULL, client_main, &c[i]), 0);
    }
    for (int i = 0; i < N_THREAD; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < N_THREAD; i++)
        for (int k = 0; k < N_EACH; k++) {
            ck_assert_int_eq(c[i].said[k].status, DGEMMA_OK);
            ck_assert_uint_eq(c[i].said[k].n_text, c[0].said[k].n_text);
            ck_assert_mem_eq(c[i].said[k].text, c[0].said[k].text, c[0].said[k].n_text);
        }
    dgemma_engine_close(e);
}
END_TEST

static void *cancel_main(void *arg)
{
    dgemma_request_cancel(arg);
    return NULL;
}

START_TEST(cancel_from_another_thread)
{
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options opt = record_endless(e);
    dgemma_request *r = submit(e, &opt);
    dgemma_event event;
    ck_assert(dgemma_request_wait(r, &event, 20)); /* it runs */
    pthread_t t;
    pthread_create(&t, NULL, cancel_main, r);
    static said s;
    listen(r, &s);
    pthread_join(t, NULL);
    ck_assert_int_eq(s.stats.end, DGEMMA_END_CANCELLED);
    ck_assert_int_eq(s.status, DGEMMA_OK);

    /* and the engine goes on */
    opt = dgemma_request_defaults(e);
    opt.chat_prompt = "x";
    opt.max_tokens = 10;
    listen(submit(e, &opt), &s);
    ck_assert_int_ne(s.stats.end, DGEMMA_END_CANCELLED);
    dgemma_engine_close(e);
}
END_TEST

START_TEST(freeing_and_closing_end_what_runs)
{
    dgemma_engine_options one_at_a_time = dg_test_engine_defaults();
    one_at_a_time.max_running = 1;
    dgemma_engine *e = open_with(one_at_a_time);
    dgemma_request_options opt = record_endless(e);
    dgemma_request_free(submit(e, &opt)); /* perhaps before it started */
    dgemma_request *running = submit(e, &opt), *waiting = submit(e, &opt);
    dgemma_event event;
    ck_assert(dgemma_request_wait(running, &event, 20));
    ck_assert(!dgemma_request_wait(waiting, &event, 0.01));
    dgemma_engine_close(e);
    static said s; /* requests outlive the engine */
    listen(running, &s);
    ck_assert_int_eq(s.stats.end, DGEMMA_END_CANCELLED);
    listen(waiting, &s);
    ck_assert_int_eq(s.stats.end, DGEMMA_END_CANCELLED);
    dgemma_request_free(NULL);
}
END_TEST

/* A loop that sleeps until it is woken up, and never waits in the library. */
typedef struct bell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
    int n;
} bell;

static void ring(void *user)
{
    bell *b = user;
    pthread_mutex_lock(&b->lock);
    b->n++;
    pthread_cond_signal(&b->rung);
    pthread_mutex_unlock(&b->lock);
}

START_TEST(notify_wakes_for_every_event)
{
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.chat_prompt = "x";
    opt.max_tokens = 40;
    opt.drafts = true;
    bell b = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    for (int late = 0; late < 2; late++) {
        dgemma_request *r = submit(e, &opt);
        b.n = 0;
        if (late) { /* it has ended before anybody asks to be told */
            static said other;
            listen(submit(e, &opt), &other);
            dgemma_request_notify(r, ring, &b);
            ck_assert_int_eq(b.n, 1);
        } else
            dgemma_request_notify(r, ring, &b);
        int n_event = 0;
        bool ended = false;
        while (!ended) {
            dgemma_event event;
            pthread_mutex_lock(&b.lock);
            while (!b.n)
                pthread_cond_wait(&b.rung, &b.lock);
            b.n = 0;
            pthread_mutex_unlock(&b.lock);
            while (dgemma_request_wait(r, &event, 0)) {
                n_event++;
                ended = event.kind == DGEMMA_EVENT_END;
            }
        }
        ck_assert_int_gt(n_event, 3);
        dgemma_request_free(r);
    }
    dgemma_engine_close(e);
}
END_TEST

/* Somebody who never reads holds up nobody, and does not fill the memory. */
START_TEST(slow_readers_lose_old_drafts)
{
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options opt = record_endless(e);
    opt.drafts = true;
    opt.max_denoise_steps = 700;
    opt.max_tokens = 10;
    dgemma_request *slow = submit(e, &opt);
    static said s;
    opt.drafts = false;
    listen(submit(e, &opt), &s); /* behind the slow one */
    int n_draft = 0, last = -1;
    for (dgemma_event event; dgemma_request_wait(slow, &event, -1);)
        if (event.kind == DGEMMA_EVENT_DRAFT) {
            n_draft++;
            ck_assert_int_gt(event.step, last);
            last = event.step;
        }
    ck_assert_int_eq(n_draft, 256);
    ck_assert_int_eq(last, 699);
    dgemma_request_free(slow);
    dgemma_engine_close(e);
}
END_TEST

START_TEST(the_queue_is_bounded)
{
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options opt = record_endless(e);
    enum { MOST = 1100 };
    static dgemma_request *r[MOST];
    int n = 0;
    dgemma_error err = {0};
    dgemma_status st = DGEMMA_OK;
    while (n < MOST && !(st = dgemma_request_submit(&r[n], e, &opt, &err)))
        n++;
    ck_assert_int_eq(st, DGEMMA_E_BUSY);
    ck_assert_int_ge(n, 1024);
    for (int i = 0; i < n; i++)
        dgemma_request_free(r[i]);
    dgemma_engine_close(e);
}
END_TEST

/* The words that clients look for, with the numbers. What is beyond the context is not read. */
START_TEST(prompts_beyond_the_context_say_so)
{
    dgemma_engine_options eo = dg_test_engine_defaults();
    eo.context_length = 64;
    dgemma_engine *e = open_with(eo);
    dgemma_request_options opt = dgemma_request_defaults(e);
    dgemma_request *r;
    dgemma_error err = {0};
    enum { LONG = 1 << 20 };
    char *text = malloc(LONG + 1);
    memset(text, 'x', LONG);
    text[LONG] = '\0';
    opt.chat_prompt = text;
    ck_assert_int_eq(dgemma_request_submit(&r, e, &opt, &err), DGEMMA_E_CONTEXT);
    ck_assert_ptr_nonnull(
        strstr(err.msg, "maximum context length is 64 tokens. However, your request has at least"));
    int least = 0;
    ck_assert_int_eq(sscanf(strstr(err.msg, "least ") + 6, "%d tokens", &least), 1);
    ck_assert_int_gt(least, 1000); /* from its length, not from the place where reading stopped */
    opt.chat_prompt = NULL;
    opt.raw_prompt = text;
    ck_assert_int_eq(dgemma_request_submit(&r, e, &opt, &err), DGEMMA_E_CONTEXT);
    text[80] = '\0'; /* may fit as far as lengths say, but does not */
    ck_assert_int_eq(dgemma_request_submit(&r, e, &opt, &err), DGEMMA_E_CONTEXT);
    ck_assert_ptr_nonnull(strstr(err.msg, "at least 65 tokens"));

    static const int32_t ids[70];
    opt.raw_prompt = NULL;
    opt.tokens = ids;
    for (size_t n = 64; n <= 70; n += 6) {
        char want[32];
        snprintf(want, sizeof want, "has %zu tokens", n);
        opt.n_tokens = n;
        ck_assert_int_eq(dgemma_request_submit(&r, e, &opt, &err), DGEMMA_E_CONTEXT);
        ck_assert_ptr_nonnull(strstr(err.msg, want));
    }
    size_t n; /* counting goes as far as the model could */
    ck_assert_int_eq(dgemma_prompt_count(e, &opt, &n, &err), DGEMMA_OK);
    ck_assert_uint_eq(n, 70);
    free(text);
    dgemma_engine_close(e);
}
END_TEST

/* ---- nobody is called after free ---- */

/* A step callback that frees a request, its own or another's, or waits until it is being freed. */
typedef struct leaver {
    _Atomic(dgemma_request *) own, other;
    atomic_int n_call, n_late;
    atomic_bool entered, freeing, left, freed;
} leaver;

static void nap(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static bool free_on_third(void *user, const dgemma_step *step)
{
    leaver *l = user;
    (void)step;
    l->n_late += l->freed;
    while (!l->own)
        nap();
    if (++l->n_call == 3) {
        dgemma_request_free(l->other);
        dgemma_request_free(l->own);
        l->freed = true;
    }
    return true;
}

static void ring_late(void *user)
{
    leaver *l = user;
    l->n_late += l->freed;
}

static bool wait_to_be_freed(void *user, const dgemma_step *step)
{
    leaver *l = user;
    (void)step;
    l->n_late += l->freed;
    l->entered = true;
    while (!l->freeing)
        nap();
    for (int i = 0; i < 50; i++) /* longer than a free that does not wait */
        nap();
    l->left = true;
    return true;
}

/* Everything that the engine has to do for earlier requests is done when this returns. */
static void run_another(dgemma_engine *e)
{
    static said s;
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.chat_prompt = "x";
    opt.max_tokens = 4;
    listen(submit(e, &opt), &s);
}

START_TEST(free_from_inside_a_step)
{
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options opt = record_endless(e);
    leaver l = {.own = NULL};
    dgemma_request *other = submit(e, &opt);
    dgemma_request_notify(other, ring_late, &l);
    l.other = other;
    opt.on_step = free_on_third;
    opt.step_user = &l;
    dgemma_request *own = submit(e, &opt);
    dgemma_request_notify(own, ring_late, &l);
    l.own = own;
    while (!l.freed)
        nap();
    run_another(e);
    ck_assert_int_eq(l.n_call, 3);
    ck_assert_int_eq(l.n_late, 0); /* not even for their END events */
    dgemma_engine_close(e);
}
END_TEST

START_TEST(free_waits_for_a_step)
{
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options opt = record_endless(e);
    leaver l = {.own = NULL};
    opt.on_step = wait_to_be_freed;
    opt.step_user = &l;
    dgemma_request *r = submit(e, &opt);
    while (!l.entered)
        nap();
    l.freeing = true;
    dgemma_request_free(r);
    l.freed = true;
    ck_assert(l.left);
    run_another(e);
    ck_assert_int_eq(l.n_late, 0);
    dgemma_engine_close(e);
}
END_TEST

/* ---- steps ---- */

typedef struct watcher {
    int n_step, stop_at;
    int32_t pin;
    bool spoil;
} watcher;

static bool on_step(void *user, const dgemma_step *step)
{
    watcher *w = user;
    w->n_step++;
    for (int i = 0; i < step->n; i++)
        if (step->accepted[i] > 1 || !(step->entropy[i] >= 0))
            return false;
    step->canvas[0] = w->spoil ? -5 : w->pin;
    return w->n_step != w->stop_at;
}

START_TEST(step_callback_takes_part)
{
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options opt = dgemma_request_defaults(e);
    static said s;
    watcher w = {.pin = 42};
    opt.chat_prompt = "x";
    opt.max_tokens = 16;
    opt.t_max = 1.6f;
    opt.on_step = on_step;
    opt.step_user = &w;
    listen(submit(e, &opt), &s);
    ck_assert_int_eq(w.n_step, s.stats.n_steps);

    w = (watcher){.pin = 42, .stop_at = 2};
    listen(submit(e, &opt), &s);
    ck_assert_int_eq(s.stats.end, DGEMMA_END_CANCELLED);
    ck_assert_int_eq(w.n_step, 2);

    w = (watcher){.spoil = true};
    listen(submit(e, &opt), &s);
    ck_assert_int_eq(s.stats.end, DGEMMA_END_FAILED);
    ck_assert_int_eq(s.status, DGEMMA_E_ARG);
    ck_assert_ptr_nonnull(strstr(s.error, "step 0"));
    dgemma_engine_close(e);
}
END_TEST

/* ---- counting ---- */

START_TEST(prompts_are_counted)
{
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options opt = dgemma_request_defaults(e);
    dgemma_error err = {0};
    static said s;
    size_t n = 7;
    opt.chat_prompt = "Say something.";
    opt.max_tokens = 4;
    ck_assert_int_eq(dgemma_prompt_count(e, &opt, &n, &err), DGEMMA_OK);
    listen(submit(e, &opt), &s);
    ck_assert_uint_eq(n, (size_t)s.stats.n_prompt);

    opt.raw_prompt = "and a second one";
    ck_assert_int_eq(dgemma_prompt_count(e, &opt, &n, &err), DGEMMA_E_ARG);
    ck_assert_uint_eq(n, 0);
    dgemma_engine_close(e);
}
END_TEST

/* ---- stop strings ---- */

START_TEST(stop_strings_cut_the_text)
{
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options opt = dgemma_request_defaults(e);
    static said whole, cut;
    opt.chat_prompt = "Say something.";
    opt.max_tokens = 64;
    do {
        listen(submit(e, &opt), &whole);
        opt.seed++;
    } while (whole.n_text < 12 || memchr(whole.text, 0, whole.n_text));
    opt.seed--;
    char stop[4] = {0};
    size_t at = 6; /* a place where a character starts */
    while (at < whole.n_text && ((unsigned char)whole.text[at] & 0xC0) == 0x80)
        at++;
    memcpy(stop, whole.text + at, 3);
    const char *stops[] = {"\x01never\x01", stop};
    opt.stop = stops;
    opt.n_stop = 2;
    dgemma_engine_counters before, after;
    dgemma_engine_count(e, &before);
    listen(submit(e, &opt), &cut);
    dgemma_engine_count(e, &after); /* as the answer itself: nothing behind the stop string */
    ck_assert_uint_eq(after.n_output_tokens - before.n_output_tokens, (unsigned)cut.stats.n_output);
    ck_assert_uint_eq(after.n_steps - before.n_steps, (unsigned)cut.stats.n_steps);
    size_t first =
        (size_t)((char *)memmem(whole.text, whole.n_text, stop, strlen(stop)) - whole.text);
    ck_assert_int_eq(cut.stats.end, DGEMMA_END_STOP);
    ck_assert_uint_eq(cut.n_text, first);
    ck_assert_mem_eq(cut.text, whole.text, first);
    ck_assert_int_eq(cut.stats.stop_string, 2);
    ck_assert_int_eq(whole.stats.stop_string, 0);

    dgemma_error err = {0};
    dgemma_request *r;
    const char *empty[] = {""};
    opt.stop = empty;
    opt.n_stop = 1;
    ck_assert_int_eq(dgemma_request_submit(&r, e, &opt, &err), DGEMMA_E_ARG);
    dgemma_engine_close(e);
}
END_TEST

/* ---- thinking ---- */

/* The state machine alone: a thought that the prompt opened is closed where its budget ends, and a
 * new canvas begins. */
START_TEST(thinking_budget_closes_the_thought)
{
    enum { OPEN = 300, CLOSE = 301, BUDGET = 20 };
    tiny_model t;
    tiny_open(&t, &(tiny_options){.max_row = 64});
    t.cfg.n_stop = t.model->cfg.n_stop = 0; /* nothing ends it early */
    int32_t prompt[5] = {2, 10, 20, 30, OPEN};
    dg_block_loop req;
    dg_block_loop_config cfg = {.prompt = prompt,
                                .n_prompt = 5,
                                .diffusion = {3, 0.4f, 0.8f, 0.1f, 1, 0.005f, 0},
                                .canvas_length = 16,
                                .max_tokens = 100,
                                .n_context = 512,
                                .draws = dg_draws_seeded(1, t.cfg.n_vocab),
                                .think_open = OPEN,
                                .think_close = CLOSE,
                                .think_newline = -1,
                                .in_thought = true,
                                .think_budget = BUDGET};
    dgemma_error err = {0};
    ck_assert_int_eq(dg_block_loop_init(&req, t.model, t.kv, &cfg, &err), DGEMMA_OK);
    int n_closed = 0, thought = 0, answered = 0;
    while (!req.end) {
        dg_work work;
        dg_want want;
        dg_block_loop_want(&req, &want);
        dg_block_loop_plan(&req, &work, dg_grant_alone(&want, 64));
        ck_assert_int_eq(dg_forward_run(t.forward, &(dg_pass){.work = &work, .n_work = 1}, &err),
                         DGEMMA_OK);
        dg_block_loop_take(&req, NULL);
        if (!req.block_done)
            continue;
        for (int i = 0; i < req.n_block_token; i++)
            if (n_closed) {
                answered++;
                ck_assert_int_ne(req.canvas.argmax[i], OPEN); /* no new thought */
            } else
                thought++;
        if (req.thought_closed) {
            n_closed++;
            ck_assert_int_eq(req.pending[req.n_pending - 1], CLOSE);
            ck_assert_int_eq(req.n_pending, req.n_block_token + 1);
        }
    }
    ck_assert_int_eq(n_closed, 1);
    ck_assert_int_eq(req.n_thought, BUDGET);
    ck_assert_int_ge(thought, BUDGET);
    ck_assert_int_gt(answered, 0);
    ck_assert_int_eq(req.n_output, thought + answered);
    ck_assert_int_eq(req.end, DG_END_LENGTH);
    dg_block_loop_clear(&req);
    tiny_close(&t);
}
END_TEST

/* Without a budget, a thought may still not eat the room for the answer. */
START_TEST(thoughts_leave_room_for_an_answer)
{
    dgemma_engine *e = open_engine("b");
    dgemma_request_options opt = dgemma_request_defaults(e);
    static said s;
    opt.messages = "[{\"role\": \"user\", \"content\": \"q\"},"
                   " {\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"1\", \"function\": "
                   "{\"name\": \"f\","
                   "  \"arguments\": {}}}]}, {\"role\": \"tool\", \"tool_call_id\": \"1\", "
                   "\"content\": \"r\"}]";
    opt.thinking = true; /* revision b then opens a thought after the tool's answer */
    opt.max_tokens = 40;
    int both = 0;
    for (opt.seed = 0; opt.seed < 40 && both < 3; opt.seed++) {
        listen(submit(e, &opt), &s);
        ck_assert_int_eq(s.status, DGEMMA_OK);
        if (s.stats.end == DGEMMA_END_LENGTH) { /* not ended by the model itself */
            ck_assert_int_gt(s.stats.n_thinking, 0);
            ck_assert_int_le(s.stats.n_thinking, 40 - 16);
            ck_assert_int_ge(s.stats.n_output - s.stats.n_thinking, 15);
            both++;
        }
    }
    ck_assert_int_gt(both, 0);
    dgemma_engine_close(e);
}
END_TEST

/* ---- what goes wrong ---- */

START_TEST(options_of_chats_are_checked)
{
    dgemma_engine *e = open_engine(NULL);
    dgemma_request_options good = dgemma_request_defaults(e), opt;
    dgemma_request *r;
    dgemma_error err = {0};
#define REFUSED(status, change)                                                                    \
    do {                                                                                           \
        opt = good;                                                                                \
        opt.max_tokens = 4;                                                                        \
        change;                                                                                    \
        ck_assert_int_eq(dgemma_request_submit(&r, e, &opt, &err), status);                        \
        ck_assert_int_gt((int)strlen(err.msg), 8);                                                 \
        ck_assert_ptr_null(strchr(err.msg, '\n'));                                                 \
    } while (0)
    REFUSED(DGEMMA_E_ARG, opt.messages = "[{");
    REFUSED(DGEMMA_E_ARG, opt.messages = "{}");
    REFUSED(DGEMMA_E_ARG, opt.messages = "[{\"role\": \"robot\", \"content\": \"x\"}]");
    REFUSED(DGEMMA_E_ARG, (opt.chat_prompt = "x", opt.tools = "[1"));
    REFUSED(DGEMMA_E_ARG, (opt.raw_prompt = "x", opt.thinking = true));
    REFUSED(DGEMMA_E_ARG, (opt.raw_prompt = "x", opt.system = "y"));
    REFUSED(DGEMMA_E_ARG, (opt.chat_prompt = "x", opt.thinking_budget = -2));
    REFUSED(DGEMMA_E_UNSUPPORTED,
            opt.messages = "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", "
                           "\"image_url\": {\"url\": \"http://localhost/x.png\"}}]}]");
    dgemma_engine_close(e);
}
END_TEST

START_TEST(no_tokenizer_still_runs_ids)
{
    dgemma_engine_options eo = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    eo.model_path = "tests/fixtures/golden/text/model";
    ck_assert_int_eq(dgemma_engine_open(&e, &eo, &err), DGEMMA_OK);
    dgemma_request_options opt = dgemma_request_defaults(e);
    dgemma_request *r;
    opt.chat_prompt = "x";
    ck_assert_int_eq(dgemma_request_submit(&r, e, &opt, &err), DGEMMA_E_UNSUPPORTED);
    static const int32_t ids[] = {5, 6, 7};
    opt.chat_prompt = NULL;
    opt.tokens = ids;
    opt.n_tokens = 3;
    opt.max_tokens = 10;
    static said s;
    listen(submit(e, &opt), &s);
    ck_assert_int_eq(s.status, DGEMMA_OK);
    ck_assert_int_gt(s.stats.n_output, 0);
    dgemma_engine_close(e);
}
END_TEST

static bool give_up(void *user, double fraction)
{
    int *n = user;
    (*n)++;
    return fraction < 0.4;
}

START_TEST(loading_tells_and_can_be_given_up)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    int n = 0;
    opt.model_path = model_path;
    opt.on_progress = give_up;
    opt.progress_user = &n;
    ck_assert_int_eq(dgemma_engine_open(&e, &opt, &err), DGEMMA_E_CANCELLED);
    ck_assert_int_ge(n, 2);
    ck_assert_ptr_null(e);

    dgemma_model_info before, after;
    opt.on_progress = NULL;
    ck_assert_int_eq(dgemma_model_estimate(&before, &opt, &err), DGEMMA_OK);
    ck_assert_int_eq(dgemma_engine_open(&e, &opt, &err), DGEMMA_OK);
    dgemma_engine_info(e, &after);
    ck_assert_str_eq(before.format, "safetensors");
    ck_assert_str_eq(after.format, "safetensors");
    ck_assert_uint_eq(before.work_bytes, after.work_bytes);
    ck_assert_uint_eq(before.weight_bytes, after.weight_bytes);
    ck_assert_uint_eq(before.kv_bytes_full, after.kv_bytes_full);
    ck_assert_uint_eq(before.kv_bytes, after.kv_bytes);
    ck_assert_uint_ge(after.kv_bytes, after.kv_bytes_full);
    dgemma_engine_close(e);
}
END_TEST

/* ---- verify ---- */

typedef struct verdicts {
    int n;
    char first_off[96];
} verdicts;

static void on_check(void *user, const dgemma_check *c)
{
    verdicts *v = user;
    v->n++;
    if (!c->passed && !v->first_off[0])
        snprintf(v->first_off, sizeof v->first_off, "%s", c->what);
}

START_TEST(verify_names_the_layer_that_is_off)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    dgemma_error err = {0};
    verdicts v = {0};
    char *reference;
    bool passed;
    opt.model_path = "tests/fixtures/golden/text/model";
    opt.kv_type = DGEMMA_KV_F32;
    ck_assert_int_eq(dgemma_verify_record(&opt, &reference, &err), DGEMMA_OK);
    ck_assert_int_eq(dgemma_verify(&opt, reference, on_check, &v, &passed, &err), DGEMMA_OK);
    ck_assert(passed);
    ck_assert_int_eq(v.n, 6 + 1 + 1); /* embedding, six layers, logits */

    /* the residual stream before layer 4 is what layer 3 gave */
    char *hidden = strstr(reference, "\"hidden\"");
    for (int i = 0; i < 4 + 2; i++)
        hidden = strchr(hidden + 1, '[');
    memcpy(hidden, "[9999 ", 6);
    for (char *c = hidden + 6; *c != ','; c++)
        *c = ' ';
    v = (verdicts){0};
    ck_assert_msg(dgemma_verify(&opt, reference, on_check, &v, &passed, &err) == DGEMMA_OK, "%s",
                  err.msg);
    ck_assert(!passed);
    ck_assert_str_eq(v.first_off, "layer 3");
    dgemma_free(reference);

    ck_assert_int_eq(dgemma_verify(&opt, NULL, on_check, &v, &passed, &err), DGEMMA_E_UNSUPPORTED);
    ck_assert_int_eq(
        dgemma_verify(&opt, "{\"prompt\": [1], \"canvas\": [99999]}", on_check, &v, &passed, &err),
        DGEMMA_E_FORMAT);
    ck_assert_int_eq(dgemma_verify(&opt, "nonsense", on_check, &v, &passed, &err), DGEMMA_E_FORMAT);
}
END_TEST

Suite *api_suite(void)
{
    Suite *s = suite_create("api");
    TCase *t = tcase_create("api");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, many_threads_share_an_engine);
    tcase_add_test(t, cancel_from_another_thread);
    tcase_add_test(t, freeing_and_closing_end_what_runs);
    tcase_add_test(t, notify_wakes_for_every_event);
    tcase_add_test(t, slow_readers_lose_old_drafts);
    tcase_add_test(t, the_queue_is_bounded);
    tcase_add_test(t, prompts_beyond_the_context_say_so);
    tcase_add_test(t, free_from_inside_a_step);
    tcase_add_test(t, free_waits_for_a_step);
    tcase_add_test(t, step_callback_takes_part);
    tcase_add_test(t, prompts_are_counted);
    tcase_add_test(t, stop_strings_cut_the_text);
    tcase_add_test(t, thinking_budget_closes_the_thought);
    tcase_add_test(t, thoughts_leave_room_for_an_answer);
    tcase_add_test(t, options_of_chats_are_checked);
    tcase_add_test(t, no_tokenizer_still_runs_ids);
    tcase_add_test(t, loading_tells_and_can_be_given_up);
    tcase_add_test(t, verify_names_the_layer_that_is_off);
    suite_add_tcase(s, t);
    return s;
}

/* dgemma decide: questions about a text or pictures, answered with labels and how likely they are.
 */
#include <math.h>
#include <string.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "decide_questions.h"
#include "request_args.h"

enum { STATE_MAX = 64 << 20, MAX_CASES = 100000 };

typedef struct decide_args {
    cli_request_args request;
    cli_questions questions;
    const char *state, *file, *calibrate, *text;
    dgemma_decide_options o;
    float temperature;
    bool json, help;
} decide_args;

static bool set_yes_no(void *target, const char *text)
{
    return cli_questions_add(target, DGEMMA_QUESTION_YES_NO, text);
}

static bool set_choice(void *target, const char *text)
{
    return cli_questions_add(target, DGEMMA_QUESTION_CHOICE, text);
}

static bool set_score(void *target, const char *text)
{
    return cli_questions_add(target, DGEMMA_QUESTION_SCORE, text);
}

/* A number, or "auto". */
static bool set_samples(void *target, const char *text)
{
    int *n = target;
    *n = 0;
    return !strcmp(text, "auto") || cli_set_count(n, text);
}

/* ---- one decision ---- */

static int decide(decide_args *a, dgemma_engine *e)
{
    dgemma_error err = {0};
    dgemma_decision *d = NULL;
    dg_buf state;
    dg_buf_init(&state, STATE_MAX);
    dgemma_status st = a->state ? cli_read_text(&state, a->state, &err) : DGEMMA_OK;
    a->o.state = a->text ? a->text : state.data ? state.data : "";
    a->o.questions = a->questions.list;
    a->o.n_questions = a->questions.n;
    a->o.media = a->request.media;
    a->o.n_media = a->request.n_media;
    a->o.image_tokens = a->request.image_tokens;
    if (!st && !dg_utf8_valid(a->o.state, strlen(a->o.state)))
        st = dg_fail(&err, DGEMMA_E_ARG, "%s: it is not UTF-8", a->state ? a->state : "the state");
    if (!st)
        st = dgemma_decide(&d, e, &a->o, &err);
    bool printed = true;
    for (size_t i = 0; !st && !a->json && i < a->questions.n; i++)
        cli_answer_print(stdout, &a->questions, i, dgemma_decision_answer(d, i));
    if (!st && a->json)
        printed = cli_answers_print_json(stdout, &a->questions, d);
    dgemma_decision_free(d);
    dg_buf_clear(&state);
    if (!printed)
        st = dg_fail(&err, DGEMMA_E_NOMEM, "out of memory");
    return st ? cli_fail(&err) : EXIT_OK;
}

/* ---- calibration ---- */

/* Log-probabilities of all answers of a file of cases, and which were right. */
typedef struct cases {
    double *logprob; /* of all options, behind each other */
    size_t n_logprob, cap;
    struct {
        size_t first, n, right;
    } * one;
    size_t n_one;
} cases;

static bool keep(cases *c, const dgemma_answer *a, size_t right)
{
    if (c->n_logprob + a->n_options > c->cap) {
        size_t cap = 2 * c->cap + a->n_options;
        double *more = dg_array_resize(c->logprob, cap, sizeof *more);
        if (!more)
            return false;
        c->logprob = more;
        c->cap = cap;
    }
    if (c->n_one % 256 == 0) {
        void *more = dg_array_resize(c->one, c->n_one + 256, sizeof *c->one);
        if (!more)
            return false;
        c->one = more;
    }
    c->one[c->n_one].first = c->n_logprob;
    c->one[c->n_one].n = a->n_options;
    c->one[c->n_one++].right = right;
    for (size_t i = 0; i < a->n_options; i++)
        c->logprob[c->n_logprob++] = log(fmax(a->probability[i], 1e-300));
    return true;
}

typedef struct fit {
    double loss, claimed, right; /* means: -ln p of what is right, p of what was said */
} fit;

static fit measure(const cases *c, double temperature)
{
    fit f = {0, 0, 0};
    for (size_t i = 0; i < c->n_one; i++) {
        const double *lp = c->logprob + c->one[i].first;
        size_t best = 0;
        double sum = 0;
        for (size_t k = 1; k < c->one[i].n; k++)
            best = lp[k] > lp[best] ? k : best;
        for (size_t k = 0; k < c->one[i].n; k++)
            sum += exp((lp[k] - lp[best]) / temperature);
        f.claimed += 1 / sum / (double)c->n_one;
        f.right += (best == c->one[i].right) / (double)c->n_one;
        f.loss += (log(sum) - (lp[c->one[i].right] - lp[best]) / temperature) / (double)c->n_one;
    }
    return f;
}

/* The loss has one minimum in 1 / T: golden section over ln T. */
static double best_temperature(const cases *c)
{
    const double golden = 0.6180339887498949;
    double lo = log(0.05), hi = log(50);
    for (int i = 0; i < 60; i++) {
        double a = hi - golden * (hi - lo), b = lo + golden * (hi - lo);
        if (measure(c, exp(a)).loss < measure(c, exp(b)).loss)
            hi = b;
        else
            lo = a;
    }
    return exp((lo + hi) / 2);
}

static dgemma_status decide_case(decide_args *a, dgemma_engine *e, cases *c, const char *line,
                                 size_t len, dgemma_error *err)
{
    static cli_questions q;
    size_t right[DGEMMA_MAX_QUESTIONS];
    char *state = NULL;
    dgemma_decision *d = NULL;
    q.n = 0;
    dgemma_status st = cli_case_read(&q, &state, right, line, len, err);
    dgemma_decide_options o = a->o;
    o.state = state;
    o.questions = q.list;
    o.n_questions = q.n;
    o.temperature = 1;
    if (!st)
        st = dgemma_decide(&d, e, &o, err);
    for (size_t i = 0; !st && i < q.n; i++)
        if (!keep(c, dgemma_decision_answer(d, i), right[i]))
            st = dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    dgemma_decision_free(d);
    dg_free(state);
    cli_questions_clear(&q);
    return st;
}

static int calibrate(decide_args *a, dgemma_engine *e)
{
    dgemma_error err = {0};
    cases c = {0};
    dg_buf text;
    dg_buf_init(&text, STATE_MAX);
    dgemma_status st = dg_file_read(&text, a->calibrate, &err);
    int line = 0;
    for (size_t from = 0; !st && from < text.len;) {
        size_t n = strcspn(text.data + from, "\n");
        line++;
        if (strspn(text.data + from, " \t\r") < n)
            st = decide_case(a, e, &c, text.data + from, n, &err);
        from += n + 1;
    }
    if (st && line) {
        char where[32];
        snprintf(where, sizeof where, "line %d", line);
        dg_fail_prefix(&err, st, where);
    }
    if (st)
        cli_name_file(&err, a->calibrate);
    if (!st && !c.n_one)
        st = dg_fail(&err, DGEMMA_E_ARG, "%s: there are no cases", a->calibrate);
    if (!st) {
        double t = best_temperature(&c);
        fit raw = measure(&c, 1), fitted = measure(&c, t);
        if (a->json)
            printf("{\"temperature\": %.4f, \"answers\": %zu, \"right\": %.4f, \"claimed\": [%.4f, "
                   "%.4f], \"loss\": [%.4f, %.4f]}\n",
                   t, c.n_one, raw.right, raw.claimed, fitted.claimed, raw.loss, fitted.loss);
        else
            printf("temperature %.4f: %zu answers, %.1f %% right, %.1f %% claimed (%.1f %% at 1), "
                   "mean -ln p %.4f (%.4f at 1)\n",
                   t, c.n_one, 100 * raw.right, 100 * fitted.claimed, 100 * raw.claimed,
                   fitted.loss, raw.loss);
    }
    dg_buf_clear(&text);
    dg_free(c.logprob);
    dg_free(c.one);
    return st ? cli_fail(&err) : EXIT_OK;
}

/* ---- the command ---- */

static const char *mistake(const decide_args *a)
{
    if (a->calibrate && (a->questions.n || a->file || a->state || a->text))
        return "--calibrate has the questions and the states in its file";
    if (a->request.system)
        return "--system has no place here: the questions are what the model is told";
    if (a->calibrate)
        return NULL;
    if (!a->questions.n)
        return "ask something: --yes-no, --choice, --score or --questions";
    if (a->text && a->state)
        return "give the state once: as a word, or with --state";
    return NULL;
}

static int run(decide_args *a)
{
    dgemma_error err = {0};
    dgemma_engine *e;
    int code;
    if (a->file && cli_questions_read(&a->questions, a->file, &err)) {
        cli_name_file(&err, a->file);
        cli_fail(&err);
        return EXIT_USAGE;
    }
    const char *wrong = mistake(a);
    if (wrong) {
        fprintf(stderr, "dgemma decide: %s\n", wrong);
        return EXIT_USAGE;
    }
    if (cli_questions_check(&a->questions, &err))
        return cli_fail(&err);
    if (!cli_request_check("decide", &a->request, &code))
        return code;
    a->o.adapters = a->request.lora.use;
    a->o.n_adapters = a->request.lora.n;
    cli_guard_model(a->request.engine.model_path);
    if (dgemma_engine_open(&e, &a->request.engine, &err))
        return cli_fail(&err);
    cli_guard_engine(e);
    code = a->calibrate ? calibrate(a, e) : decide(a, e);
    cli_guard_engine(NULL);
    dgemma_engine_close(e);
    return code;
}

static const char usage[] =
    "usage: dgemma decide [OPTION]... [STATE]\n\n"
    "Answers questions about a text, or about pictures, with one of a few labels each, and says "
    "how\n"
    "likely every label is: one pass over a short canvas, nothing is written. The text is the "
    "last\n"
    "word or a file. Raw numbers are over-confident: --calibrate finds a temperature for them.\n";

int cmd_decide(int argc, char **argv)
{
    static decide_args a;
    a = (decide_args){.request = cli_request_defaults(), .o = dgemma_decide_defaults()};
    a.temperature = 1;
    const cli_option rows[] = {
        {0, "questions", NULL, NULL, NULL, NULL},
        {0, "yes-no", "TEXT", "a question of yes or no", set_yes_no, &a.questions},
        {0, "choice", "TEXT=A,B", "one with options, up to 255", set_choice, &a.questions},
        {0, "score", "TEXT=A,B", "one with levels, the lowest first, up to 10", set_score,
         &a.questions},
        {0, "questions", "FILE",
         "questions as System One's API has them, JSON; - is standard input", cli_set_string,
         &a.file},
        {0, "state", "FILE", "what they are about, in place of the last word; - is standard input",
         cli_set_string, &a.state},
        {0, "reads", NULL, NULL, NULL, NULL},
        {0, "samples", "N", "reads with other noise, averaged; auto: more where there is doubt (1)",
         set_samples, &a.o.samples},
        {0, "permute", "N", "average over so many orders of the options (1)", cli_set_count,
         &a.o.orders},
        {0, "think", "N", "tokens of thought first (0)", cli_set_int, &a.o.think},
        {0, "steps", "N", "of denoising before labels are read (1)", cli_set_count, &a.o.steps},
        {0, "independent", NULL, "each question has a prompt and a canvas of its own",
         cli_set_switch, &a.o.independent},
        {'s', "seed", "N", "of the noise (0)", cli_set_seed, &a.o.seed},
        {0, "temperature", "T", "divides the labels' log-probabilities (1)", cli_set_float,
         &a.temperature},
        {0, "calibrate", "FILE", "find that temperature: cases with answers, a JSON object a line",
         cli_set_string, &a.calibrate},
        {0, "json", NULL, "print JSON", cli_set_switch, &a.json},
        {'h', "help", NULL, "this text", cli_set_switch, &a.help},
    };
    cli_options options = {0};
    cli_options_add_model(&options, &a.request);
    cli_options_add(&options, rows, sizeof rows / sizeof rows[0]);
    cli_options_add_machine(&options, &a.request);
    size_t n_rest;
    const char *rest[1];
    int code = EXIT_USAGE;
    if (cli_parse("decide", options.row, options.n, argc, argv, rest, 1, &n_rest)) {
        a.text = n_rest ? rest[0] : NULL;
        a.o.temperature = (double)a.temperature;
        if (a.help)
            cli_print_help(usage, options.row, options.n);
        code = a.help ? EXIT_OK : run(&a);
    }
    cli_questions_clear(&a.questions);
    return code;
}

/* Asks a model under many schemas, one to sixteen requests at a time, and prints a line of JSON for
 * each answer: the schema, the text, why it ended. tests/guided/test_valid.py makes the schemas and
 * looks at the answers; what the model knows does not matter.
 *
 *     valid_answers MODEL ANSWERS FIRST < schemas     a schema on each line, numbered from FIRST on
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dgemma.h"

enum { COMPANY = 16, MOST_TOKENS = 400 };

static void print_string(const char *text, size_t n)
{
    putchar('"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < ' ' || c == '"' || c == '\\')
            printf("\\u%04x", c);
        else
            putchar(c);
    }
    putchar('"');
}

/* 0 to n - 1, by an answer's number and by what it is for. */
static int pick(uint64_t number, uint64_t what, int n)
{
    uint64_t x = (number + 1) * 0x9e3779b97f4a7c15u + what * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (int)((x >> 33) % (uint64_t)n);
}

static void give_up(const char *schema, const char *why)
{
    fprintf(stderr, "%s: %s\n", schema, why);
    exit(1);
}

/* Tokens of the shortest answer, as the refusal of one less says. */
static int need_of(dgemma_engine *e, dgemma_request_options o, const char *schema)
{
    dgemma_error err = {0};
    dgemma_request *r = NULL;
    int need = 1;
    o.max_tokens = 1;
    for (; dgemma_request_submit(&r, e, &o, &err); o.max_tokens = need - 1) {
        const char *number = strstr(err.msg, "needs ");
        int said = number ? atoi(number + strlen("needs ")) : 0;
        if (need > 1 && said == need)
            return need; /* one less was refused for the same reason */
        if (said < 2)
            give_up(schema, err.msg);
        need = said;
    }
    dgemma_request_cancel(r);
    dgemma_request_free(r);
    if (need > 1)
        give_up(schema, "less than what is needed was enough");
    return need;
}

/* Options that differ from answer to answer. A third has no token more than the shortest answer. */
static dgemma_request_options options_for(dgemma_engine *e, dgemma_constraint *c, uint64_t number,
                                          const char *schema)
{
    enum { CANVAS, TOKENS, EXACT, STEPS, SETTLED, THINKING, THOUGHT, COLD };
    dgemma_request_options o = dgemma_request_defaults(e);
    int longest = o.canvas_length < 64 ? o.canvas_length : 64;
    o.chat_prompt = "Tell me something.";
    o.constraint = c;
    o.seed = number;
    o.canvas_length = 16 + 8 * pick(number, CANVAS, (longest - 16) / 8 + 1);
    o.max_denoise_steps = 3 + pick(number, STEPS, 5);
    o.settled_steps = pick(number, SETTLED, 3) == 0;
    o.thinking = pick(number, THINKING, 4) == 0;
    o.thinking_budget = o.thinking ? pick(number, THOUGHT, 40) : -1;
    o.temperature = pick(number, COLD, 7) ? 1 : 0;
    int need = need_of(e, o, schema);
    o.max_tokens = need;
    if (pick(number, EXACT, 3) && need < MOST_TOKENS)
        o.max_tokens += pick(number, TOKENS, MOST_TOKENS - need + 1);
    return o;
}

static void tell(dgemma_request *r, const char *schema, const dgemma_request_options *o)
{
    static char text[1 << 20];
    size_t n = 0;
    for (dgemma_event e; dgemma_request_wait(r, &e, -1);) {
        if (e.kind == DGEMMA_EVENT_TEXT && n + e.text_len < sizeof text) {
            memcpy(text + n, e.text, e.text_len);
            n += e.text_len;
        }
        if (e.kind != DGEMMA_EVENT_END)
            continue;
        printf("{\"schema\": %s, \"end\": %d, \"error\": ", schema, (int)e.stats.end);
        print_string(e.status ? e.text : "", e.status ? e.text_len : 0);
        printf(", \"tokens\": %d, \"max_tokens\": %d, \"text\": ", e.stats.n_output, o->max_tokens);
        print_string(text, n);
        puts("}");
    }
    dgemma_request_free(r);
}

static void ask(dgemma_engine *e, const char *schema, int n, uint64_t round)
{
    dgemma_constraint *c = NULL;
    dgemma_error err = {0};
    dgemma_constraint_options opt = {
        .kind = DGEMMA_CONSTRAINT_JSON_SCHEMA, .text = schema, .text_len = strlen(schema)};
    if (dgemma_constraint_create(&c, &opt, &err))
        give_up(schema, err.msg);
    for (int first = 0, company; first < n; first += company) {
        dgemma_request *r[COMPANY] = {NULL};
        dgemma_request_options o[COMPANY];
        uint64_t number = round * (uint64_t)n + (uint64_t)first;
        company = 1 + pick(number, 99, COMPANY);
        company = company < n - first ? company : n - first;
        for (int i = 0; i < company; i++)
            o[i] = options_for(e, c, number + (uint64_t)i, schema);
        for (int i = 0; i < company; i++)
            if (dgemma_request_submit(&r[i], e, &o[i], &err))
                give_up(schema, err.msg);
        for (int i = 0; i < company; i++)
            tell(r[i], schema, &o[i]);
    }
    dgemma_constraint_free(c);
}

int main(int argc, char **argv)
{
    static char line[1 << 16];
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    dgemma_engine_options opt = dgemma_engine_defaults();
    if (argc != 4)
        return 2;
    opt.model_path = argv[1];
    opt.device = "cpu";
    opt.n_threads = 1;
    if (dgemma_engine_open(&e, &opt, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    for (uint64_t round = (uint64_t)atoi(argv[3]); fgets(line, sizeof line, stdin); round++) {
        line[strcspn(line, "\n")] = '\0';
        ask(e, line, atoi(argv[2]), round);
    }
    dgemma_engine_close(e);
    return 0;
}

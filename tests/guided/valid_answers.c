/* Asks a model under many schemas, several requests at a time, and prints a line of JSON for each
 * answer: the schema, the text, why it ended. tests/guided/test_valid.py makes the schemas and
 * looks at the answers; what the model knows does not matter.
 *
 *     valid_answers MODEL ANSWERS < schemas     a schema on each line */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "dgemma.h"

enum { COMPANY = 16 };

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

/* Options that differ from answer to answer. */
static dgemma_request_options options_for(dgemma_engine *e, dgemma_constraint *c, int i)
{
    static const int canvas[] = {16, 24, 32, 64}, tokens[] = {160, 240, 320, 400};
    dgemma_request_options o = dgemma_request_defaults(e);
    o.chat_prompt = "Tell me something.";
    o.constraint = c;
    o.seed = (uint64_t)i;
    if (canvas[i % 4] < o.canvas_length)
        o.canvas_length = canvas[i % 4];
    o.max_tokens = tokens[i / 4 % 4];
    o.max_denoise_steps = 3 + i % 5;
    o.settled_steps = i % 3 == 1;
    o.thinking = i % 5 == 2;
    o.thinking_budget = o.thinking ? 20 : -1;
    o.temperature = i % 7 ? 1 : 0;
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

static void ask(dgemma_engine *e, const char *schema, int n, int round)
{
    dgemma_constraint *c = NULL;
    dgemma_error err = {0};
    dgemma_constraint_options opt = {
        .kind = DGEMMA_CONSTRAINT_JSON_SCHEMA, .text = schema, .text_len = strlen(schema)};
    if (dgemma_constraint_create(&c, &opt, &err)) {
        fprintf(stderr, "%s: %s\n", schema, err.msg);
        exit(1);
    }
    for (int first = 0; first < n; first += COMPANY) {
        dgemma_request *r[COMPANY] = {NULL};
        dgemma_request_options o[COMPANY];
        for (int i = 0; i < COMPANY && first + i < n; i++) {
            o[i] = options_for(e, c, round * n + first + i);
            if (dgemma_request_submit(&r[i], e, &o[i], &err)) {
                fprintf(stderr, "%s: %s\n", schema, err.msg);
                exit(1);
            }
        }
        for (int i = 0; i < COMPANY && r[i]; i++)
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
    if (argc != 3)
        return 2;
    opt.model_path = argv[1];
    opt.device = "cpu";
    if (dgemma_engine_open(&e, &opt, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    for (int round = 0; fgets(line, sizeof line, stdin); round++) {
        line[strcspn(line, "\n")] = '\0';
        ask(e, line, atoi(argv[2]), round);
    }
    dgemma_engine_close(e);
    return 0;
}

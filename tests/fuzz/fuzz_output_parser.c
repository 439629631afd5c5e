/* Any tokens into the output parser: events are well formed and do not depend on the cuts. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "base/utf8.h"
#include "text/json_tree.h"
#include "support/byte_tokenizer.h"
#include "text/output_parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

/* ---- a vocabulary of bytes and markers ---- */

static const char *const markers[] = {
    "<pad>",
    "<eos>",
    "<bos>",
    "<|turn>",
    "<turn|>",
    "<|channel>",
    "<channel|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|tool_response>",
    "<tool_response|>",
    "<|\"|>",
    "<|image|>",
};

/* Control characters but tab and newline stand for markers, so that a corpus can be read. */
static int32_t token_of(uint8_t byte)
{
    if (byte >= ' ' || byte == '\t' || byte == '\n')
        return byte;
    return DG_TEST_N_BYTE + byte % (int)DG_COUNT(markers);
}

/* ---- what is said of it ---- */

typedef struct record {
    dg_buf text; /* all events; runs of one kind joined */
    int last, n_call;
    bool ended;
} record;

static void check_arguments(dg_text json)
{
    dg_json_tree tree;
    dgemma_status st = dg_json_read(&tree, json.data, json.len, "arguments", NULL);
    require(st == DGEMMA_OK || st == DGEMMA_E_LIMIT); /* numbers may be too long */
    require(st || tree.root->kind == DG_JSON_OBJECT);
    dg_json_tree_clear(&tree);
}

static bool on_event(void *user, const dg_output_event *e)
{
    record *r = user;
    require(!r->ended);
    if (r->last != (int)e->kind || e->kind == DG_OUTPUT_TOOL_CALL) {
        char head[] = {'\n', (char)('0' + e->kind)};
        require(dg_buf_append(&r->text, head, sizeof head));
    }
    r->last = (int)e->kind;
    require(!e->text.len || dg_utf8_valid(e->text.data, e->text.len));
    switch (e->kind) {
    case DG_OUTPUT_THINKING:
    case DG_OUTPUT_TEXT:
    case DG_OUTPUT_BROKEN_CALL:
        require(e->text.len > 0);
        break;
    case DG_OUTPUT_TOOL_CALL:
        require(e->index == r->n_call++ && e->name.len > 0);
        require(dg_utf8_valid(e->name.data, e->name.len));
        require(dg_buf_append(&r->text, e->name.data, e->name.len));
        check_arguments(e->text);
        break;
    case DG_OUTPUT_END:
        require(e->index == r->n_call);
        r->ended = true;
        break;
    }
    require(dg_buf_append(&r->text, e->text.data, e->text.len));
    return true;
}

/* Cut after each token whose index has one of the bits of `mask`; 0: not at all. */
static void run(const dg_tokenizer *t, const int32_t *ids, size_t n, dg_output_options options,
                size_t mask, dg_buf *out)
{
    record r = {.last = -1};
    dg_buf_init(&r.text, 1 << 26);
    dg_output_parser *p;
    require(dg_output_parser_create(&p, t, &options, on_event, &r, NULL) == DGEMMA_OK);
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(i & mask))
            continue;
        require(dg_output_parser_push(p, ids + from, i - from, NULL) == DGEMMA_OK);
        from = i;
    }
    require(dg_output_parser_push(p, ids + from, n - from, NULL) == DGEMMA_OK);
    require(dg_output_parser_finish(p, NULL) == DGEMMA_OK);
    require(r.ended);
    dg_output_parser_free(p);
    *out = r.text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static dg_tokenizer *t;
    t = t ? t : dg_test_byte_tokenizer(markers, DG_COUNT(markers), false);
    if (!size)
        return 0;
    size_t n = size - 1;
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    require(ids != NULL);
    for (size_t i = 0; i < n; i++)
        ids[i] = token_of(data[i + 1]);
    dg_output_options options = {.in_thought = data[0] == '+', .in_text = data[0] == '>'};
    dg_buf whole, single, some;
    run(t, ids, n, options, 0, &whole);
    run(t, ids, n, options, SIZE_MAX, &single);
    run(t, ids, n, options, data[0], &some);
    require(whole.len == single.len && memcmp(whole.data, single.data, whole.len) == 0);
    require(whole.len == some.len && memcmp(whole.data, some.data, whole.len) == 0);
    dg_buf_clear(&whole);
    dg_buf_clear(&single);
    dg_buf_clear(&some);
    free(ids);
    return 0;
}

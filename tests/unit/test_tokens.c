/* Tokens that may come next, against every token of the vocabulary tried by itself. */
#include <stdlib.h>
#include <string.h>
#include "base/common.h"
#include "base/file.h"
#include "constraint/constraint.h"
#include "constraint/token_groups.h"
#include "constraint/tokens.h"
#include "suites.h"
#include "support/alloc_fail.h"

static dg_tokenizer *tokenizer;
static dg_token_trie *trie;

static void setup(void)
{
    dg_buf text;
    dgemma_error err = {0};
    dg_buf_init(&text, 1 << 24);
    ck_assert(!dg_file_read(&text, "tests/fixtures/tiny_tokenizer.json", &err));
    ck_assert_msg(!dg_tokenizer_from_json(&tokenizer, text.data, text.len, "tiny", &err), "%s",
                  err.msg);
    ck_assert(!dg_token_trie_create(&trie, tokenizer, 0, &err));
    dg_buf_clear(&text);
}

static void teardown(void)
{
    dg_token_trie_free(trie);
    dg_tokenizer_free(tokenizer);
}

/* The bytes of a token: one that is for a byte is that byte. */
static void bytes_of(int32_t id, dg_buf *out)
{
    dg_piece p = dg_tokenizer_piece(tokenizer, id);
    char digits[3] = "";
    out->len = 0;
    if (p.len == 6 && !memcmp(p.text, "<0x", 3)) {
        memcpy(digits, p.text + 3, 2);
        char byte = (char)strtoul(digits, NULL, 16);
        ck_assert(dg_buf_append(out, &byte, 1));
    } else if (!dg_tokenizer_is_special(tokenizer, id))
        ck_assert(!dg_tokenizer_decode(tokenizer, &id, 1, false, out, NULL));
}

/* The edge by which this token goes, if any: its own, or its class's. */
static const dg_token_edge *edge_of(const dg_token_edges *e, int32_t id)
{
    uint8_t class = dg_token_trie_classes(trie)[id];
    for (size_t i = 0; i < e->n; i++)
        if (e->at[i].is_class ? class == e->at[i].token : e->at[i].token == id)
            return &e->at[i];
    return NULL;
}

/* Another token with the same bytes is there instead. */
static bool has_twin(const dg_token_edges *e, int32_t id, const dg_buf *bytes)
{
    dg_buf other;
    bool found = false;
    dg_buf_init(&other, 1 << 16);
    for (int32_t k = 0; k < dg_tokenizer_count(tokenizer) && !found; k++) {
        bytes_of(k, &other);
        found = k != id && other.len == bytes->len &&
                !memcmp(other.data, bytes->data, bytes->len) && edge_of(e, k);
    }
    dg_buf_clear(&other);
    return found;
}

static bool wide; /* of the place that was looked at last */

static void check_place(dg_language *l, dg_place at, bool escape)
{
    dg_token_edges e = {0};
    dg_buf bytes;
    dg_buf_init(&bytes, 1 << 16);
    ck_assert(!dg_token_edges_find(trie, l, at, NULL, &e, &wide, NULL));
    for (int32_t id = 0; id < dg_tokenizer_count(tokenizer); id++) {
        size_t n = 0;
        dg_place to = at;
        bytes_of(id, &bytes);
        if (bytes.len)
            ck_assert(!dg_language_walk(l, &to, bytes.data, bytes.len, &n, NULL));
        bool fits = bytes.len && n == bytes.len;
        const dg_token_edge *found = edge_of(&e, id);
        if (found)
            ck_assert_msg(fits && found->to == to, "token %d", id);
        else
            ck_assert_msg(!fits || (escape && bytes.len > 1) || has_twin(&e, id, &bytes),
                          "token %d is missing", id);
    }
    dg_token_edges_clear(&e);
    dg_buf_clear(&bytes);
}

static dg_syntax *compile(dg_constraint_kind kind, const char *text)
{
    dg_syntax *s;
    dgemma_error err = {0};
    dg_constraint_options o = {.kind = kind, .text = text, .len = strlen(text)};
    ck_assert_msg(!dg_constraint_compile(&s, &o, &err), "%s", err.msg);
    return s;
}

START_TEST(as_every_token_says_by_itself)
{
    static const struct {
        dg_constraint_kind kind;
        const char *text, *word;
    } list[] = {
        {DG_CONSTRAINT_JSON_SCHEMA,
         "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, \"n\": "
         "{\"type\": \"integer\"}}}",
         "{\"name\": \"the\\n\xc3\xa9\", \"n\": 12}"},
        {DG_CONSTRAINT_JSON_SCHEMA, "{\"type\": \"string\", \"maxLength\": 5}", "\"a\\\"b\""},
        {DG_CONSTRAINT_REGEX, "(the|then) [a-z]{2,4}", "then ab"},
    };
    for (size_t i = 0; i < DG_COUNT(list); i++) {
        dg_syntax *s = compile(list[i].kind, list[i].text);
        dg_language *l;
        ck_assert(!dg_language_create(&l, s, NULL));
        dg_place at = dg_language_start(l);
        bool escape = false;
        for (const char *c = list[i].word; *c; c++) {
            check_place(l, at, escape);
            ck_assert(!dg_language_step(l, &at, (unsigned char)*c, NULL));
            ck_assert(at != DG_PLACE_DEAD);
            escape = *c == '\\' && !escape;
        }
        dg_language_free(l);
        dg_syntax_free(s);
    }
}
END_TEST

START_TEST(a_free_string_has_one_edge_for_its_class)
{
    dg_syntax *s = compile(DG_CONSTRAINT_JSON_SCHEMA, "{\"type\": \"string\"}");
    dg_language *l;
    dg_token_edges e = {0};
    ck_assert(!dg_language_create(&l, s, NULL));
    dg_place at = dg_language_start(l);
    ck_assert(!dg_token_edges_find(trie, l, at, NULL, &e, &wide, NULL));
    ck_assert(e.n && !e.at[0].is_class);
    ck_assert(!dg_language_step(l, &at, '"', NULL));
    ck_assert(!dg_language_step(l, &at, 'x', NULL));
    ck_assert(!dg_token_edges_find(trie, l, at, NULL, &e, &wide, NULL));
    ck_assert(e.n && e.at[0].is_class && e.at[0].to == at);
    ck_assert_int_gt((int)dg_token_trie_measure(trie).n_plain, 0);
    dg_token_edges_clear(&e);
    dg_language_free(l);
    dg_syntax_free(s);
}
END_TEST

/* Groups hold the same edges, and places alike share them. */
START_TEST(groups_are_the_same_edges)
{
    dg_syntax *s = compile(DG_CONSTRAINT_JSON_SCHEMA,
                           "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
                           "\"string\"}, \"b\": {\"type\": \"string\"}}}");
    static const char word[] = "{\"a\": \"x\", \"b\": \"y\\n\"}";
    dg_language *l;
    dg_token_groups *g;
    dg_token_edges plain = {0};
    ck_assert(!dg_language_create(&l, s, NULL));
    ck_assert(!dg_token_groups_create(&g, trie, l, NULL, NULL));
    for (int round = 0; round < 2; round++) {
        dg_place at = dg_language_start(l);
        size_t n_group = dg_token_groups_count(g);
        for (const char *c = word; *c; c++) {
            const dg_group_edge *edge;
            size_t n, n_token, total = 0;
            ck_assert(!dg_token_edges_find(trie, l, at, NULL, &plain, &wide, NULL));
            ck_assert(!dg_token_groups_edges(g, at, &edge, &n, &wide, NULL));
            for (size_t i = 0; i < n; i++) {
                if (edge[i].is_class) {
                    ck_assert(plain.at[0].is_class && plain.at[0].to == edge[i].to);
                    total++;
                    continue;
                }
                const int32_t *ids = dg_token_groups_tokens(g, edge[i].group, &n_token);
                for (size_t k = 0; k < n_token; k++) {
                    const dg_token_edge *same = NULL;
                    for (size_t j = 0; j < plain.n && !same; j++)
                        if (!plain.at[j].is_class && plain.at[j].token == ids[k])
                            same = &plain.at[j];
                    ck_assert(same && same->to == edge[i].to);
                }
                total += n_token;
            }
            ck_assert_int_eq((int)total, (int)plain.n);
            ck_assert(!dg_language_step(l, &at, (unsigned char)*c, NULL));
        }
        /* the second time, with places that were forgotten, there is nothing new */
        ck_assert(!round || dg_token_groups_count(g) == n_group);
        dg_place start = dg_language_start(l);
        ck_assert(!dg_language_forget(l, &start, NULL));
        dg_token_groups_forget(g);
    }
    dg_token_edges_clear(&plain);
    dg_token_groups_free(g);
    dg_language_free(l);
    dg_syntax_free(s);
}
END_TEST

START_TEST(bytes_are_spelled_by_the_longest_tokens)
{
    static const char text[] = "the \xc3\xa9\xff {\"name\": 12}";
    dg_tokens ids;
    dg_buf all, one;
    dg_tokens_init(&ids, 1000);
    dg_buf_init(&all, 1000);
    dg_buf_init(&one, 1000);
    ck_assert(!dg_token_trie_spell(trie, text, strlen(text), &ids, NULL));
    for (size_t i = 0; i < ids.n; i++) {
        bytes_of(ids.ids[i], &one);
        ck_assert(dg_buf_append(&all, one.data, one.len));
    }
    ck_assert(all.len == strlen(text) && !memcmp(all.data, text, all.len));
    dg_tokens_clear(&ids);
    dg_buf_clear(&all);
    dg_buf_clear(&one);
}
END_TEST

START_TEST(memory_may_run_out)
{
    dg_syntax *s = compile(DG_CONSTRAINT_JSON_SCHEMA, "{\"type\": \"string\"}");
    for (long n = 1;; n++) {
        dg_token_trie *t = NULL;
        dg_language *l = NULL;
        dg_token_groups *g = NULL;
        const dg_group_edge *edge;
        size_t n_edge;
        dg_test_fail_alloc_at(n);
        dgemma_status st = dg_token_trie_create(&t, tokenizer, 0, NULL);
        if (!st)
            st = dg_language_create(&l, s, NULL);
        if (!st)
            st = dg_token_groups_create(&g, t, l, NULL, NULL);
        if (!st)
            st = dg_token_groups_edges(g, dg_language_start(l), &edge, &n_edge, &wide, NULL);
        bool reached = dg_test_alloc_done();
        dg_token_groups_free(g);
        dg_language_free(l);
        dg_token_trie_free(t);
        ck_assert_int_eq(st, reached ? DGEMMA_E_NOMEM : DGEMMA_OK);
        if (!reached)
            break;
    }
    dg_syntax_free(s);
}
END_TEST

Suite *tokens_suite(void)
{
    Suite *s = suite_create("tokens");
    TCase *c = tcase_create("tokens");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, as_every_token_says_by_itself);
    tcase_add_test(c, a_free_string_has_one_edge_for_its_class);
    tcase_add_test(c, groups_are_the_same_edges);
    tcase_add_test(c, bytes_are_spelled_by_the_longest_tokens);
    tcase_add_test(c, memory_may_run_out);
    suite_add_tcase(s, c);
    return s;
}

/* A constraint of arbitrary bytes: the first says of which kind, the rest is a schema, an
 * expression, a grammar or a list of tools. What is accepted gives words that it accepts. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "constraint/constraint.h"
#include "constraint/language.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void check_words(dg_language *l)
{
    for (uint32_t i = 0; i < 4; i++) {
        dg_buf word;
        dg_buf_init(&word, 1 << 20);
        dg_rng_key key = {.seed = 1, .block = i};
        dgemma_error err = {0};
        dgemma_status st = dg_language_draw(l, &key, 10u << i, &word, NULL, NULL, &err);
        require(!st || st == DGEMMA_E_LIMIT);
        dg_place at = dg_language_start(l);
        size_t n = 0;
        dg_edges e;
        bool symbols = dg_language_has_symbols(l); /* they are left out of words */
        if (!st && !symbols && !dg_language_walk(l, &at, word.data, word.len, &n, &err)) {
            require(n == word.len);
            require(dg_language_edges(l, at, &e, &err) || e.accepts);
        }
        dg_buf_clear(&word);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    dg_constraint_kind kind = data[0] == 'r'   ? DG_CONSTRAINT_REGEX
                              : data[0] == 'g' ? DG_CONSTRAINT_GRAMMAR
                              : data[0] == 't' ? DG_CONSTRAINT_TOOLS
                                               : DG_CONSTRAINT_JSON_SCHEMA;
    dg_constraint_options options = {.kind = kind,
                                     .text = (const char *)data + 1,
                                     .len = size - 1,
                                     .compact = data[0] == 'c',
                                     .lenient = data[0] == 'l'};
    dg_syntax *s;
    dg_language *l;
    dgemma_error err = {0};
    dgemma_status st = dg_constraint_compile(&s, &options, &err);
    if (st) {
        require(err.status == st && err.msg[0]);
        return 0;
    }
    if (!dg_language_create(&l, s, &err)) {
        check_words(l);
        dg_language_free(l);
    }
    dg_syntax_free(s);
    return 0;
}

#include "gemma_vocabulary.h"
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/utf8.h"

enum { FIRST_LEARNED = 494, FIRST_TAB = 255968 }; /* from the table of ids in Google's vocabulary */

/* ---- a hash table from bytes to a number ---- */

typedef struct row {
    const void *key;
    size_t len;
    int32_t value;
} row;

struct table {
    size_t n_row; /* a power of two */
    row rows[];
};

static table *table_create(size_t n)
{
    size_t n_row = 16;
    while (n_row < 2 * n)
        n_row *= 2;
    table *t = calloc(1, sizeof *t + n_row * sizeof t->rows[0]);
    ck_assert_ptr_nonnull(t);
    t->n_row = n_row;
    return t;
}

/* The row of this key, or the free one where it belongs. */
static row *table_row(table *t, const void *key, size_t len)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < len; i++)
        hash = (hash + ((const unsigned char *)key)[i] + 1) * UINT64_C(0xD6E8FEB86659FD93);
    hash ^= hash >> 32;
    row *r;
    for (;; hash++) {
        r = &t->rows[hash & (t->n_row - 1)];
        if (!r->key || (r->len == len && memcmp(r->key, key, len) == 0))
            return r;
    }
}

static void table_put(table *t, const void *key, size_t len, int32_t value)
{
    *table_row(t, key, len) = (row){key, len, value};
}

static int32_t table_get(table *t, const void *key, size_t len)
{
    const row *r = table_row(t, key, len);
    return r->key ? r->value : -1;
}

/* ---- merges, by the rule that the vocabulary was published with ---- */

typedef struct scored_merge {
    int32_t ids[2];
    int32_t score;
    int n_left, n_right; /* characters */
    size_t order;
} scored_merge;

static int count_chars(const char *text, size_t len)
{
    int n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80;
    return n;
}

static int compare_merges(const void *va, const void *vb)
{
    const scored_merge *a = va, *b = vb;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    if (a->n_left != b->n_left)
        return a->n_left > b->n_left ? -1 : 1;
    if (a->n_right != b->n_right)
        return a->n_right > b->n_right ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

static size_t find_splits(gemma_vocabulary *g, scored_merge *out)
{
    size_t n = 0;
    for (size_t id = 0; id < g->n_piece; id++) {
        dg_piece piece = g->pieces[id];
        bool by_hand = id < FIRST_LEARNED || id >= FIRST_TAB;
        for (size_t i = 1; i < piece.len; i++) {
            if (((unsigned char)piece.text[i] & 0xC0) == 0x80)
                continue;
            int32_t left = table_get(g->ids, piece.text, i);
            int32_t right = left < 0 ? -1 : table_get(g->ids, piece.text + i, piece.len - i);
            if (right < 0)
                continue;
            out[n] = (scored_merge){{left, right},
                                    by_hand ? 0 : FIRST_LEARNED - (int32_t)id,
                                    count_chars(piece.text, i),
                                    count_chars(piece.text + i, piece.len - i),
                                    n};
            n++;
        }
    }
    return n;
}

static void make_merges(gemma_vocabulary *g)
{
    size_t n_max = 0;
    for (size_t id = 0; id < g->n_piece; id++)
        n_max += g->pieces[id].len;
    scored_merge *all = malloc(n_max * sizeof *all);
    ck_assert_ptr_nonnull(all);
    g->n_merge = find_splits(g, all);
    qsort(all, g->n_merge, sizeof *all, compare_merges);

    g->merges = malloc(g->n_merge * sizeof *g->merges);
    g->ranks = table_create(g->n_merge);
    ck_assert_ptr_nonnull(g->merges);
    for (size_t i = 0; i < g->n_merge; i++) {
        memcpy(g->merges[i], all[i].ids, sizeof g->merges[i]);
        table_put(g->ranks, g->merges[i], sizeof g->merges[i], (int32_t)i);
    }
    free(all);
}

/* ---- reading ---- */

/* A line of the file is a JSON string. It is unescaped where it stands: a parser would make
 * hundreds of thousands of objects, which a leak checker then walks through after each test. */
static dg_piece unescape(const char *line, char *out)
{
    const char *start = out;
    ck_assert_int_eq(*line, '"');
    for (line++; *line != '"'; line++) {
        ck_assert(*line && *line != '\n');
        if (*line != '\\') {
            *out++ = *line;
            continue;
        }
        static const char names[] = "btn\"\\", values[] = "\b\t\n\"\\";
        const char *name = strchr(names, *++line);
        if (name) {
            *out++ = values[name - names];
        } else {
            unsigned c;
            ck_assert(sscanf(line, "u%4x", &c) == 1 && c < 128);
            *out++ = (char)c;
            line += 4;
        }
    }
    return (dg_piece){start, (size_t)(out - start)};
}

static void read_pieces(gemma_vocabulary *g, const char *path)
{
    dgemma_error err;
    dg_buf_init(&g->file, 1 << 26);
    ck_assert_msg(dg_file_read(&g->file, path, &err) == DGEMMA_OK, "%s", err.msg);
    for (size_t i = 0; i < g->file.len; i++)
        g->n_piece += g->file.data[i] == '\n';
    g->pieces = malloc(g->n_piece * sizeof *g->pieces);
    ck_assert_ptr_nonnull(g->pieces);
    char *line = g->file.data;
    for (size_t id = 0; id < g->n_piece; id++) {
        char *next = strchr(line, '\n') + 1;
        g->pieces[id] = unescape(line, line);
        line = next;
    }
}

void gemma_vocabulary_init(gemma_vocabulary *g)
{
    *g = (gemma_vocabulary){0};
    read_pieces(g, "tests/data/tokenizer/gemma4_vocab.jsonl");
    g->ids = table_create(g->n_piece);
    for (size_t i = 0; i < g->n_piece; i++)
        table_put(g->ids, g->pieces[i].text, g->pieces[i].len, (int32_t)i);
    make_merges(g);

    json_t *added = json_load_file("tests/data/tokenizer/gemma4_added_tokens.json", 0, NULL);
    size_t i;
    const json_t *token;
    json_array_foreach(added, i, token)
    {
        json_int_t id = json_integer_value(json_object_get(token, "id"));
        g->added[g->n_added++] = (dg_added_token){(int32_t)id, true};
    }
    json_decref(added);
    ck_assert_uint_eq(g->n_added, 24);
}

void gemma_vocabulary_clear(gemma_vocabulary *g)
{
    free(g->pieces);
    free(g->merges);
    free(g->ids);
    free(g->ranks);
    dg_buf_clear(&g->file);
}

dg_vocabulary gemma_vocabulary_view(const gemma_vocabulary *g)
{
    return (dg_vocabulary){.where = "gemma4_vocab.jsonl",
                           .pieces = g->pieces,
                           .n_piece = g->n_piece,
                           .added = g->added,
                           .n_added = g->n_added};
}

dg_tokenizer *gemma_vocabulary_tokenizer(const gemma_vocabulary *g)
{
    dg_vocabulary v = gemma_vocabulary_view(g);
    dg_tokenizer *t;
    dgemma_error err;
    if (dg_tokenizer_create(&t, &v, &err) != DGEMMA_OK) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    return t;
}

/* ---- writing ---- */

static void write_string(FILE *out, dg_piece piece)
{
    fputc('"', out);
    for (size_t i = 0; i < piece.len; i++) {
        unsigned char c = (unsigned char)piece.text[i];
        if (c < ' ' || c == '"' || c == '\\')
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

static const char pipeline[] =
    "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\u2581\"},"
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},"
    "\"behavior\":\"MergedWithPrevious\",\"invert\":false},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
    "\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"},"
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}";

char *gemma_vocabulary_write_json(const gemma_vocabulary *g, size_t *len)
{
    char *json = NULL;
    FILE *out = open_memstream(&json, len);
    ck_assert_ptr_nonnull(out);
    fprintf(out, "{%s,\"added_tokens\":[", pipeline);
    for (size_t i = 0; i < g->n_added; i++) {
        fprintf(out, "%s{\"id\":%d,\"content\":", i ? "," : "", g->added[i].id);
        write_string(out, g->pieces[g->added[i].id]);
        fputs(",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
              "\"normalized\":false,\"special\":true}",
              out);
    }
    fputs("],\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{", out);
    for (size_t i = 0; i < g->n_piece; i++) {
        fputs(i ? "," : "", out);
        write_string(out, g->pieces[i]);
        fprintf(out, ":%zu", i);
    }
    fputs("},\"merges\":[", out);
    for (size_t i = 0; i < g->n_merge; i++) {
        fputs(i ? ",[" : "[", out);
        write_string(out, g->pieces[g->merges[i][0]]);
        fputc(',', out);
        write_string(out, g->pieces[g->merges[i][1]]);
        fputc(']', out);
    }
    fputs("]}}", out);
    ck_assert_int_eq(fclose(out), 0);
    return json;
}

/* ---- encoding ---- */

static int32_t byte_id(unsigned char byte)
{
    return FIRST_LEARNED - 256 + byte;
}

void gemma_vocabulary_encode(const gemma_vocabulary *g, const char *text, size_t len,
                             dg_tokens *out)
{
    size_t start = out->n;
    for (size_t i = 0, step; i < len; i += step) {
        step = dg_utf8_decode(text + i, len - i, NULL);
        int32_t id = -1;
        if (text[i] == ' ')
            id = table_get(g->ids, "\u2581", 3);
        else if (step)
            id = table_get(g->ids, text + i, step);
        step = step ? step : 1;
        if (id >= 0)
            dg_tokens_push(out, id);
        for (size_t k = 0; id < 0 && k < step; k++)
            dg_tokens_push(out, byte_id((unsigned char)text[i + k]));
    }
    for (;;) {
        int32_t best = -1;
        size_t at = 0;
        for (size_t i = start; i + 1 < out->n; i++) {
            int32_t rank = table_get(g->ranks, &out->ids[i], 2 * sizeof out->ids[0]);
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                at = i;
            }
        }
        if (best < 0)
            return;
        dg_piece left = g->pieces[out->ids[at]], right = g->pieces[out->ids[at + 1]];
        char whole[1024];
        memcpy(whole, left.text, left.len);
        memcpy(whole + left.len, right.text, right.len);
        out->ids[at] = table_get(g->ids, whole, left.len + right.len);
        memmove(&out->ids[at + 1], &out->ids[at + 2], (out->n - at - 2) * sizeof out->ids[0]);
        out->n--;
    }
}

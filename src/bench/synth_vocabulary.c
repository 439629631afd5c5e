#include "bench/synth_vocabulary.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"
#include "text/merges.h"

enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, TYPE_BYTE = 6 };
enum { SLOT = 24, FIRST_BYTE = 238, N_BYTE = 256 }; /* of a made vocabulary; ids as published */

const char dg_synth_template[] =
    "{%- set ns = namespace(last_user_idx=-1) -%}\n"
    "{%- for message in messages -%}\n"
    "{%- if message['role'] == 'user' -%}{%- set ns.last_user_idx = loop.index0 -%}{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{{- bos_token -}}\n"
    "{%- for message in messages -%}\n"
    "{{- '<|turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' -}}\n"
    "{%- if message.get('reasoning') and loop.index0 > ns.last_user_idx -%}\n"
    "{{- '<|channel>thought\\n' + message['reasoning'] + '<channel|>' -}}\n"
    "{%- endif -%}\n"
    "{%- for call in message.get('tool_calls') or [] -%}\n"
    "{{- '<|tool_call>call:' + call['function']['name'] + '{}<tool_call|>' -}}\n"
    "{%- endfor -%}\n"
    "{{- (message.get('content') or '') | trim + '<turn|>\\n' -}}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "{{- '<|turn>model\\n' -}}\n"
    "{%- if not enable_thinking -%}{{- '<|channel>thought\\n<channel|>' -}}{%- endif -%}\n"
    "{%- endif -%}\n";

/* ---- made up ---- */

static const struct {
    int id; /* in the published vocabulary; in a small one they simply come first */
    const char *text;
} markers[] = {
    {0, "<pad>"},
    {1, "<eos>"},
    {2, "<bos>"},
    {3, "<unk>"},
    {4, "<mask>"},
    {46, "<|tool>"},
    {47, "<tool|>"},
    {48, "<|tool_call>"},
    {49, "<tool_call|>"},
    {50, "<|tool_response>"},
    {51, "<tool_response|>"},
    {52, "<|\"|>"},
    {98, "<|think|>"},
    {100, "<|channel>"},
    {101, "<channel|>"},
    {105, "<|turn>"},
    {106, "<turn|>"},
    {255999, "<|image>"},
    {256000, "<|audio>"},
    {258880, "<|image|>"},
    {258881, "<|audio|>"},
    {258882, "<image|>"},
    {258883, "<audio|>"},
    {258884, "<|video|>"},
};

static bool is_large(const dg_synth_vocabulary *v)
{
    return v->n > (size_t)markers[DG_COUNT(markers) - 1].id;
}

static const char *marker_at(const dg_synth_vocabulary *v, size_t id)
{
    if (!is_large(v))
        return id < DG_COUNT(markers) ? markers[id].text : NULL;
    for (size_t i = 0; i < DG_COUNT(markers); i++)
        if (markers[i].id == (int)id)
            return markers[i].text;
    return NULL;
}

static size_t first_byte(const dg_synth_vocabulary *v)
{
    return is_large(v) ? FIRST_BYTE : DG_COUNT(markers);
}

static const char consonants[] = "bdfghjklmnprstvwz", vowels[] = "aeiou";
enum {
    N_VOWEL = sizeof vowels - 1,
    N_SYLLABLE = (sizeof consonants - 1) * N_VOWEL,
    N_PAIR = N_SYLLABLE * N_SYLLABLE,
    N_CHARACTER = '~' - '!' + 1,
};

static const char space[] = "\xE2\x96\x81"; /* U+2581 */

static void put_syllable(char out[SLOT], int i)
{
    size_t n = strlen(out);
    out[n] = consonants[i / N_VOWEL];
    out[n + 1] = vowels[i % N_VOWEL];
    out[n + 2] = '\0';
}

/* Number k of the pieces that text is made of: characters, then syllables and words, those of one
 * and two syllables also behind a space. */
static void make_piece(char out[SLOT], int k)
{
    static const struct {
        int n, n_syllable;
        bool spaced;
    } kinds[] = {{N_SYLLABLE, 1, false},
                 {N_SYLLABLE, 1, true},
                 {N_PAIR, 2, false},
                 {N_PAIR, 2, true},
                 {N_PAIR * N_SYLLABLE, 3, false}};
    if (k < N_CHARACTER + 2) {
        snprintf(out, SLOT, "%s", k == 0 ? space : k == 1 ? "\n" : "");
        if (k >= 2)
            snprintf(out, SLOT, "%c", '!' + k - 2);
        return;
    }
    k -= N_CHARACTER + 2;
    size_t i = 0;
    while (i + 1 < DG_COUNT(kinds) && k >= kinds[i].n)
        k -= kinds[i++].n;
    snprintf(out, SLOT, "%s", kinds[i].spaced ? space : "");
    for (int s = 0, divisor = 1; s < kinds[i].n_syllable; s++, divisor *= N_SYLLABLE)
        put_syllable(out, k / divisor % N_SYLLABLE);
}

static void make_pieces(dg_synth_vocabulary *v)
{
    int k = 0;
    size_t bytes_at = first_byte(v);
    for (size_t id = 0; id < v->n; id++) {
        char *out = v->text + id * SLOT;
        const char *marker = marker_at(v, id);
        v->type[id] = TYPE_CONTROL;
        if (marker)
            snprintf(out, SLOT, "%s", marker);
        else if (id < bytes_at)
            snprintf(out, SLOT, "<unused%d>", (int)id);
        else if (id < bytes_at + N_BYTE) {
            snprintf(out, SLOT, "<0x%02X>", (unsigned)(id - bytes_at) & 0xFF);
            v->type[id] = TYPE_BYTE;
        } else {
            make_piece(out, k++);
            v->type[id] = TYPE_NORMAL;
        }
        v->piece[id] = (dg_piece){out, strlen(out)};
    }
}

static dgemma_status allocate(dg_synth_vocabulary *v, size_t n, bool texts, dgemma_error *err)
{
    *v = (dg_synth_vocabulary){.n = n, .bos = 2, .eos = 1, .pad = 0};
    v->piece = dg_array(n, sizeof *v->piece);
    v->type = dg_array(n, sizeof *v->type);
    v->text = texts ? dg_calloc(n, SLOT) : NULL;
    if (v->piece && v->type && (v->text || !texts))
        return DGEMMA_OK;
    dg_synth_vocabulary_clear(v);
    return dg_fail(err, DGEMMA_E_NOMEM, "no memory for a vocabulary of %zu pieces", n);
}

dgemma_status dg_synth_vocabulary_make(dg_synth_vocabulary *v, int n, dgemma_error *err)
{
    dgemma_status st = allocate(v, (size_t)n, true, err);
    if (!st)
        make_pieces(v);
    return st;
}

/* ---- taken ---- */

static int64_t type_of(const dg_tokenizer *t, int32_t id)
{
    char name[DG_PIECE_MAX_ADDED + 1];
    dg_piece piece = dg_tokenizer_piece(t, id);
    if (dg_tokenizer_is_special(t, id))
        return TYPE_CONTROL;
    if (piece.len > DG_PIECE_MAX_ADDED)
        return TYPE_NORMAL;
    memcpy(name, piece.text, piece.len);
    name[piece.len] = '\0';
    if (dg_tokenizer_added_id(t, name) == id)
        return TYPE_USER_DEFINED;
    bool byte = piece.len == 6 && memcmp(name, "<0x", 3) == 0 && name[5] == '>';
    return byte ? TYPE_BYTE : TYPE_NORMAL;
}

dgemma_status dg_synth_vocabulary_of(dg_synth_vocabulary *v, const dg_tokenizer *t,
                                     dgemma_error *err)
{
    dgemma_status st = allocate(v, (size_t)dg_tokenizer_count(t), false, err);
    for (int32_t i = 0; !st && i < dg_tokenizer_count(t); i++) {
        v->piece[i] = dg_tokenizer_piece(t, i);
        v->type[i] = type_of(t, i);
    }
    if (!st) {
        v->bos = dg_tokenizer_bos(t);
        v->eos = dg_tokenizer_added_id(t, "<eos>");
        v->pad = dg_tokenizer_added_id(t, "<pad>");
    }
    return st;
}

void dg_synth_vocabulary_clear(dg_synth_vocabulary *v)
{
    dg_free(v->piece);
    dg_free(v->type);
    dg_free(v->text);
    *v = (dg_synth_vocabulary){0};
}

/* ---- into the file ---- */

/* "left right" of each merge, one after the other in *text. */
static bool write_merges(dg_buf *text, dg_gguf_text *line, const dg_merges *m, const dg_pieces *p)
{
    bool ok = true;
    size_t at = 0;
    for (size_t i = 0; ok && i < m->n; i++) {
        dg_piece l = dg_pieces_at(p, m->at[i].left), r = dg_pieces_at(p, m->at[i].right);
        ok = dg_buf_append(text, l.text, l.len) && dg_buf_append(text, " ", 1) &&
             dg_buf_append(text, r.text, r.len);
    }
    for (size_t i = 0; ok && i < m->n; i++) {
        size_t len = dg_pieces_at(p, m->at[i].left).len + 1 + dg_pieces_at(p, m->at[i].right).len;
        line[i] = (dg_gguf_text){text->data + at, len};
        at += len;
    }
    return ok;
}

static dgemma_status put_merges(const dg_synth_vocabulary *v, dg_gguf_writer *w, dgemma_error *err)
{
    static const char where[] = "the vocabulary";
    dg_vocabulary from = {.where = where, .pieces = v->piece, .n_piece = v->n};
    dg_pieces p = {0};
    dg_merges m = {0};
    dg_gguf_text *line = NULL;
    dg_buf text;
    dg_buf_init(&text, (size_t)1 << 30);
    dgemma_status st = dg_pieces_init(&p, &from, err);
    if (!st)
        st = dg_merges_derive(&m, &p, where, err);
    if (!st) {
        line = dg_array(m.n, sizeof *line);
        if (!line || !write_merges(&text, line, &m, &p))
            st = dg_fail(err, DGEMMA_E_NOMEM, "no memory for %zu merges", m.n);
    }
    if (!st)
        dg_gguf_put_strings(w, "tokenizer.ggml.merges", line, m.n);
    dg_free(line);
    dg_buf_clear(&text);
    dg_merges_clear(&m);
    dg_pieces_clear(&p);
    return st;
}

static void put_id(dg_gguf_writer *w, const char *key, int id)
{
    if (id >= 0)
        dg_gguf_put_int(w, key, DG_GGUF_U32, id);
}

dgemma_status dg_synth_vocabulary_put(const dg_synth_vocabulary *v, dg_gguf_writer *w,
                                      dgemma_error *err)
{
    dg_gguf_text *text = dg_array(v->n, sizeof *text);
    float *score = dg_array(v->n, sizeof *score);
    dgemma_status st = DGEMMA_OK;
    if (!text || !score)
        st = dg_fail(err, DGEMMA_E_NOMEM, "no memory for a vocabulary of %zu pieces", v->n);
    for (size_t i = 0; !st && i < v->n; i++) {
        text[i] = (dg_gguf_text){v->piece[i].text, v->piece[i].len};
        score[i] = -1000; /* as published: nobody reads them */
    }
    if (!st) {
        dg_gguf_put_string(w, "tokenizer.ggml.model", "gemma4");
        dg_gguf_put_strings(w, "tokenizer.ggml.tokens", text, v->n);
        dg_gguf_put_floats(w, "tokenizer.ggml.scores", score, v->n);
        dg_gguf_put_ints(w, "tokenizer.ggml.token_type", DG_GGUF_I32, v->type, v->n);
        put_id(w, "tokenizer.ggml.bos_token_id", v->bos);
        put_id(w, "tokenizer.ggml.eos_token_id", v->eos);
        put_id(w, "tokenizer.ggml.padding_token_id", v->pad);
        dg_gguf_put_int(w, "tokenizer.ggml.add_bos_token", DG_GGUF_BOOL, 1);
        dg_gguf_put_int(w, "tokenizer.ggml.add_space_prefix", DG_GGUF_BOOL, 0);
        dg_gguf_put_string(w, "tokenizer.chat_template", dg_synth_template);
        st = put_merges(v, w, err);
    }
    dg_free(text);
    dg_free(score);
    return st;
}

#include "bench/synth_vocabulary.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/common.h"

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
        v->special[id] = id < bytes_at || marker;
        if (marker)
            snprintf(out, SLOT, "%s", marker);
        else if (id < bytes_at)
            snprintf(out, SLOT, "<unused%d>", (int)id);
        else if (id < bytes_at + N_BYTE)
            snprintf(out, SLOT, "<0x%02X>", (unsigned)(id - bytes_at) & 0xFF);
        else
            make_piece(out, k++);
        v->piece[id] = (dg_piece){out, strlen(out)};
    }
}

dgemma_status dg_synth_vocabulary_make(dg_synth_vocabulary *v, int n, dgemma_error *err)
{
    *v = (dg_synth_vocabulary){.n = (size_t)n};
    v->piece = dg_array(v->n, sizeof *v->piece);
    v->special = dg_array(v->n, sizeof *v->special);
    v->text = dg_calloc(v->n, SLOT);
    if (!v->piece || !v->special || !v->text) {
        dg_synth_vocabulary_clear(v);
        return dg_fail(err, DGEMMA_E_NOMEM, "no memory for a vocabulary of %d pieces", n);
    }
    make_pieces(v);
    return DGEMMA_OK;
}

void dg_synth_vocabulary_clear(dg_synth_vocabulary *v)
{
    dg_free(v->piece);
    dg_free(v->special);
    dg_free(v->text);
    *v = (dg_synth_vocabulary){0};
}

/* ---- as a tokenizer ---- */

dgemma_status dg_synth_tokenizer(dg_tokenizer **out, int n, dgemma_error *err)
{
    dg_synth_vocabulary v;
    *out = NULL;
    dgemma_status st = dg_synth_vocabulary_make(&v, n, err);
    if (st)
        return st;
    dg_added_token *added = dg_array(v.n, sizeof *added);
    dg_vocabulary from = {.where = "made words", .pieces = v.piece, .n_piece = v.n, .added = added};
    for (size_t i = 0; added && i < v.n; i++)
        if (v.special[i])
            added[from.n_added++] = (dg_added_token){(int32_t)i, true};
    st = added ? dg_tokenizer_create(out, &from, err)
               : dg_fail(err, DGEMMA_E_NOMEM, "no memory for a vocabulary of %zu pieces", v.n);
    dg_free(added);
    dg_synth_vocabulary_clear(&v);
    return st;
}

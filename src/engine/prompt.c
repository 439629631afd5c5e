#include "engine/prompt.h"
#include <string.h>
#include "base/alloc.h"
#include "base/base64.h"
#include "base/common.h"
#include "engine/block_loop.h"
#include "engine/engine.h"
#include "engine/infill_prompt.h"

enum { MEDIA_MAX_BYTES = 256 << 20, MOST_BLANKS = 16 };

static const char image_mark[] = "<|image|>", video_mark[] = "<|video|>";

/* What is gathered on the way. */
typedef struct builder {
    const dgemma_engine *e;
    const dgemma_request_options *o;
    dgemma_prompt *out;
    dgemma_error *err;

    dg_media_slot *slot; /* placeholders among the tokens, in order */
    size_t n_slot, cap_slot;
    size_t n_used;         /* of o->media */
    dgemma_media *decoded; /* media that came as data URLs */
    dg_buf *bytes;
    size_t n_decoded, cap_decoded;
} builder;

dgemma_status dg_need_tokenizer(const dgemma_engine *e, dgemma_error *err)
{
    return e->loaded.tokenizer ? DGEMMA_OK
                               : dg_fail(err, DGEMMA_E_UNSUPPORTED,
                                         "the model has no tokenizer: only token ids are possible");
}

/* ---- media ---- */

static dgemma_status add_slot(builder *b, size_t token, const dgemma_media *media)
{
    if (b->n_slot == b->cap_slot) {
        size_t cap = b->cap_slot ? 2 * b->cap_slot : 8;
        dg_media_slot *slot = dg_array_resize(b->slot, cap, sizeof *slot);
        if (!slot)
            return dg_fail(b->err, DGEMMA_E_NOMEM, "out of memory");
        b->slot = slot;
        b->cap_slot = cap;
    }
    b->slot[b->n_slot++] = (dg_media_slot){token, media};
    return DGEMMA_OK;
}

/* The next of the media that came beside the prompt. */
static dgemma_status next_media(builder *b, bool video, const dgemma_media **out)
{
    if (b->n_used == b->o->n_media)
        return dg_fail(b->err, DGEMMA_E_ARG,
                       "the prompt has a place for more pictures than the %zu given",
                       b->o->n_media);
    *out = &b->o->media[b->n_used++];
    if ((*out)->video != video)
        return dg_fail(b->err, DGEMMA_E_ARG,
                       "medium %zu is a %s, its place in the prompt is for a %s", b->n_used - 1,
                       (*out)->video ? "video" : "picture", video ? "video" : "picture");
    return DGEMMA_OK;
}

/* A data URL ("data:image/png;base64,…") to a medium of its own. Slots point to it, so there is
 * room for all from the start. */
static dgemma_status decode_url(builder *b, dg_text url, bool video, const dgemma_media **out)
{
    const char *comma = memchr(url.data, ',', url.len);
    size_t head = comma ? (size_t)(comma - url.data) : 0;
    if (url.len < 5 || memcmp(url.data, "data:", 5) != 0)
        return dg_fail(b->err, DGEMMA_E_UNSUPPORTED,
                       "a picture's address must be a data URL: files and links are not followed");
    if (!comma || head < 7 || memcmp(comma - 7, ";base64", 7) != 0)
        return dg_fail(b->err, DGEMMA_E_ARG, "a picture's data URL is not in base64");
    dg_buf *bytes = &b->bytes[b->n_decoded];
    dg_buf_init(bytes, MEDIA_MAX_BYTES);
    dgemma_media *m = &b->decoded[b->n_decoded++];
    dgemma_status st = dg_base64_decode(bytes, comma + 1, url.len - head - 1);
    if (st == DGEMMA_E_NOMEM)
        return dg_fail(b->err, st, "out of memory for a picture");
    if (st || !bytes->len)
        return dg_fail(b->err, DGEMMA_E_ARG,
                       "a picture's data URL is empty, too long or not base64");
    *m = (dgemma_media){.data = bytes->data, .size = bytes->len, .video = video};
    *out = m;
    return DGEMMA_OK;
}

/* ---- conversations ---- */

static dg_text text_of(const char *s)
{
    return s ? (dg_text){s, strlen(s)} : (dg_text){0};
}

static dg_message text_message(dg_role role, const char *text)
{
    return (dg_message){.role = role, .content = {.kind = DG_CONTENT_TEXT, .text = text_of(text)}};
}

/* How often a marker stands in a text. */
static size_t count_marks(const char *text, const char *mark)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, mark)); at += strlen(mark))
        n++;
    return n;
}

/* Parts of a chat prompt with pictures: those that the text has no mark for come first, then the
 * text, cut at its marks. */
static dgemma_status prompt_parts(builder *b, dg_part **parts, size_t *n)
{
    const dgemma_request_options *o = b->o;
    size_t n_image = 0, n_video = 0;
    for (size_t i = 0; i < o->n_media; i++)
        *(o->media[i].video ? &n_video : &n_image) += 1;
    size_t marks_i = count_marks(o->chat_prompt, image_mark),
           marks_v = count_marks(o->chat_prompt, video_mark);
    size_t marks = marks_i + marks_v;
    if (marks && (marks_i != n_image || marks_v != n_video))
        return dg_fail(b->err, DGEMMA_E_ARG,
                       "the prompt has %zu %s and %zu %s, given are %zu pictures and %zu videos: "
                       "mark all or none",
                       marks_i, image_mark, marks_v, video_mark, n_image, n_video);
    *parts = dg_array(2 * marks + o->n_media + 1, sizeof **parts);
    if (!*parts)
        return dg_fail(b->err, DGEMMA_E_NOMEM, "out of memory");
    *n = 0;
    for (size_t i = 0; !marks && i < o->n_media; i++)
        (*parts)[(*n)++] = (dg_part){.kind = o->media[i].video ? DG_PART_VIDEO : DG_PART_IMAGE};
    const char *at = o->chat_prompt;
    while (marks) {
        const char *image = strstr(at, image_mark), *video = strstr(at, video_mark);
        const char *next = !image || (video && video < image) ? video : image;
        if (!next)
            break;
        if (next > at)
            (*parts)[(*n)++] = (dg_part){.kind = DG_PART_TEXT, .text = {at, (size_t)(next - at)}};
        (*parts)[(*n)++] = (dg_part){.kind = next == image ? DG_PART_IMAGE : DG_PART_VIDEO};
        at = next + strlen(image_mark); /* both marks have the same length */
    }
    if (*at || !*n)
        (*parts)[(*n)++] = (dg_part){.kind = DG_PART_TEXT, .text = text_of(at)};
    return DGEMMA_OK;
}

/* Gives each slot of the rendered prompt its medium. */
static dgemma_status fill_slots(builder *b, const dg_conversation *c, const dg_prompt *prompt)
{
    b->decoded = dg_calloc(prompt->n_slot, sizeof *b->decoded);
    b->bytes = dg_calloc(prompt->n_slot, sizeof *b->bytes);
    if (!b->decoded || !b->bytes)
        return dg_fail(b->err, DGEMMA_E_NOMEM, "out of memory");
    for (size_t i = 0; i < prompt->n_slot; i++) {
        const dg_prompt_slot *s = &prompt->slots[i];
        dg_text url = c->messages[s->message].content.parts[s->part].text;
        const dgemma_media *media;
        if (s->kind == DG_PART_AUDIO)
            return dg_fail(b->err, DGEMMA_E_UNSUPPORTED, "message %zu: the model does not hear",
                           s->message);
        bool video = s->kind == DG_PART_VIDEO;
        dgemma_status st =
            url.data ? decode_url(b, url, video, &media) : next_media(b, video, &media);
        if (!st)
            st = add_slot(b, s->token, media);
        if (st)
            return st;
    }
    return DGEMMA_OK;
}

/* ---- how the answer has to begin ---- */

static bool has_prefix(const dgemma_request_options *o)
{
    return o->answer_prefix && *o->answer_prefix;
}

static bool forces_call(const dgemma_request_options *o)
{
    return o->tool_choice == DGEMMA_TOOLS_REQUIRED || o->tool_choice == DGEMMA_TOOLS_NAMED;
}

/* Whoever says how the answer begins leaves no room for a thought in front of it. */
static dgemma_status choose_tools(builder *b, dg_conversation *c)
{
    const dgemma_request_options *o = b->o;
    if (o->tool_choice == DGEMMA_TOOLS_NONE)
        c->tools = (dg_text){0};
    if (has_prefix(o) || forces_call(o)) {
        c->thinking = false;
        c->add_generation_prompt = true;
    }
    if (!forces_call(o))
        return DGEMMA_OK;
    bool found;
    size_t n;
    dgemma_status st = dg_chat_find_tool(c->tools, o->tool_name, &found, &n, b->err);
    if (!st && !n)
        st = dg_fail(b->err, DGEMMA_E_ARG, "a tool call is required, but there are no tools");
    if (!st && o->tool_choice == DGEMMA_TOOLS_NAMED && !found)
        st = dg_fail(b->err, DGEMMA_E_ARG, "a call of \"%.64s\" is required, which is not declared",
                     o->tool_name);
    return st;
}

/* Puts the beginning into the model's mouth: text, then a call. What people wrote is text, whatever
 * markers it holds. Before a gap blanks at its end are left to the model: it writes them as one
 * token with the word that follows. */
static dgemma_status add_opening(builder *b)
{
    const dgemma_request_options *o = b->o;
    const dg_tokenizer *t = b->e->loaded.tokenizer;
    dg_tokens *out = &b->out->tokens;
    dgemma_status st = DGEMMA_OK;
    if (has_prefix(o)) {
        size_t len = strlen(o->answer_prefix), kept = len;
        while (o->suffix && kept && len - kept < MOST_BLANKS && o->answer_prefix[kept - 1] == ' ')
            kept--;
        size_t before = out->n;
        st = dg_tokenizer_encode(t, o->answer_prefix, kept, 0, out, b->err);
        b->out->n_prefix = (int)(out->n - before);
        b->out->n_blank = (int)(len - kept);
    }
    b->out->in_text = has_prefix(o) || o->suffix;
    if (st || !forces_call(o))
        return st;
    size_t before = out->n;
    dg_buf call;
    dg_buf_init(&call, DG_ENCODE_MAX_TEXT);
    bool ok = dg_buf_puts(&call, "call:");
    if (o->tool_choice == DGEMMA_TOOLS_NAMED)
        ok = ok && dg_buf_puts(&call, o->tool_name) && dg_buf_puts(&call, "{");
    int32_t open = dg_tokenizer_added_id(t, "<|tool_call>");
    if (open < 0)
        st = dg_fail(b->err, DGEMMA_E_UNSUPPORTED, "the model's tokenizer has no tool calls");
    else if (!ok || !dg_tokens_push(out, open))
        st = dg_fail(b->err, out->least ? DGEMMA_E_LIMIT : DGEMMA_E_NOMEM,
                     "no room for the beginning of a tool call");
    else
        st = dg_tokenizer_encode(t, call.data, call.len, 0, out, b->err);
    dg_buf_clear(&call);
    b->out->n_opening = out->n - before;
    return st;
}

static dgemma_status render(builder *b, const dg_conversation *c)
{
    dg_prompt prompt;
    dg_prompt_init(&prompt);
    dgemma_status st = dg_chat_render(c, b->e->revision, &prompt, b->err);
    if (!st)
        st = dg_prompt_encode(b->e->loaded.tokenizer, &prompt, &b->out->tokens, b->err);
    if (!st)
        st = add_opening(b);
    if (!st)
        st = fill_slots(b, c, &prompt);
    b->out->in_thought = prompt.in_thought;
    b->out->thinks = c->thinking;
    dg_prompt_clear(&prompt);
    return st;
}

static dgemma_status build_chat(builder *b)
{
    const dgemma_request_options *o = b->o;
    dg_conversation *read = NULL, c = {.add_generation_prompt = true};
    if (o->messages) {
        dgemma_status st =
            dg_conversation_from_json(&read, o->messages, strlen(o->messages), b->err);
        if (st)
            return st;
        c = *read;
    }
    c.thinking = c.thinking || o->thinking;
    if (o->tools)
        c.tools = text_of(o->tools);

    /* the system message and the prompt given as options, around what the JSON brought */
    size_t n_read = c.n_message, n_part = 0;
    dg_part *parts = NULL;
    dg_message *all = dg_array(n_read + 2, sizeof *all);
    dgemma_status st = all ? DGEMMA_OK : dg_fail(b->err, DGEMMA_E_NOMEM, "out of memory");
    if (!st)
        st = choose_tools(b, &c);
    if (!st && o->chat_prompt && o->n_media)
        st = prompt_parts(b, &parts, &n_part);
    if (!st) {
        c.n_message = 0;
        if (o->system)
            all[c.n_message++] = text_message(DG_ROLE_SYSTEM, o->system);
        if (n_read)
            memcpy(all + c.n_message, c.messages, n_read * sizeof *all);
        c.n_message += n_read;
        if (o->chat_prompt)
            all[c.n_message++] = text_message(DG_ROLE_USER, o->chat_prompt);
        if (parts)
            all[c.n_message - 1].content =
                (dg_content){.kind = DG_CONTENT_PARTS, .parts = parts, .n_part = n_part};
        c.messages = all;
        st = render(b, &c);
    }
    dg_free(parts);
    dg_free(all);
    dg_conversation_free(read);
    return st;
}

/* ---- prompts that are taken as they stand ---- */

static dgemma_status build_raw(builder *b)
{
    /* the model was trained with exactly one <bos> */
    const dg_tokenizer *t = b->e->loaded.tokenizer;
    const char *text = b->o->raw_prompt;
    bool has_bos = strncmp(text, "<bos>", 5) == 0 || dg_tokenizer_bos(t) < 0;
    unsigned flags = DG_ENCODE_ADDED | (has_bos ? 0u : (unsigned)DG_ENCODE_BOS);
    return dg_tokenizer_encode(t, text, strlen(text), flags, &b->out->tokens, b->err);
}

static dgemma_status build_tokens(builder *b)
{
    dg_tokens *out = &b->out->tokens;
    if (b->o->n_tokens > out->max)
        return dg_fail_context(b->err, out->max, b->o->n_tokens, true);
    for (size_t i = 0; i < b->o->n_tokens; i++)
        if (!dg_tokens_push(out, b->o->tokens[i]))
            return dg_fail(b->err, DGEMMA_E_NOMEM, "out of memory for %zu tokens", b->o->n_tokens);
    return DGEMMA_OK;
}

/* In such prompts every placeholder token is a place for the next medium. */
static dgemma_status find_slots(builder *b)
{
    const dg_tokenizer *t = b->e->loaded.tokenizer;
    int32_t image = b->e->loaded.cfg.image_token,
            video = t ? dg_tokenizer_added_id(t, video_mark) : -1;
    for (size_t i = 0; b->o->n_media && i < b->out->tokens.n; i++) {
        int32_t id = b->out->tokens.ids[i];
        if (id != image && id != video)
            continue;
        const dgemma_media *media;
        dgemma_status st = next_media(b, id == video, &media);
        if (!st)
            st = add_slot(b, i, media);
        if (st)
            return st;
    }
    return DGEMMA_OK;
}

/* ---- all together ---- */

static dgemma_status place_pictures(builder *b)
{
    const dg_config *cfg = &b->e->loaded.cfg;
    if (b->n_used < b->o->n_media)
        return dg_fail(b->err, DGEMMA_E_ARG,
                       "%zu pictures were given, the prompt has places for %zu", b->o->n_media,
                       b->n_used);
    if (!b->n_slot)
        return DGEMMA_OK;
    if (!b->e->vision)
        return dg_fail(b->err, DGEMMA_E_UNSUPPORTED,
                       "%s has no vision tower: it cannot look at pictures",
                       dg_checkpoint_dir(b->e->loaded.checkpoint));
    if (cfg->boi_token < 0 || cfg->eoi_token < 0)
        return dg_fail(b->err, DGEMMA_E_UNSUPPORTED,
                       "the model names no tokens for where a picture begins and ends");
    dg_pictures_config config = {cfg, b->e->loaded.tokenizer,
                                 b->o->image_tokens ? b->o->image_tokens : cfg->vision.max_soft,
                                 b->e->picture_memory};
    return dg_pictures_place(&b->out->pictures, &config, &b->out->tokens, b->slot, b->n_slot,
                             b->err);
}

static dgemma_status build(builder *b)
{
    const dgemma_request_options *o = b->o;
    dg_tokens *tokens = &b->out->tokens;
    dgemma_status st = o->tokens ? DGEMMA_OK : dg_need_tokenizer(b->e, b->err);
    if (!st)
        st = o->tokens ? build_tokens(b) : o->raw_prompt ? build_raw(b) : build_chat(b);
    if (st == DGEMMA_E_LIMIT && tokens->least)
        st = dg_fail_context(b->err, tokens->max, tokens->least, false);
    if (!st && (o->tokens || o->raw_prompt))
        st = find_slots(b);
    if (!st)
        st = place_pictures(b);
    for (size_t i = 0; i < b->n_decoded; i++)
        dg_buf_clear(&b->bytes[i]);
    dg_free(b->bytes);
    dg_free(b->decoded);
    dg_free(b->slot);
    return st;
}

dgemma_status dg_prompt_build(dgemma_prompt **out, const dgemma_engine *e,
                              const dgemma_request_options *o, int max_tokens, dgemma_error *err)
{
    dgemma_prompt *p = dg_calloc(1, sizeof *p);
    if (!p)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    atomic_init(&p->n_holder, 1);
    p->engine = e;
    p->salt = o->cache_salt ? dg_strdup(o->cache_salt) : NULL;
    dg_tokens_init(&p->tokens, (size_t)max_tokens);
    dgemma_request_options asked = *o;
    dg_buf words;
    dg_buf_init(&words, DG_ENCODE_MAX_TEXT);
    bool ok = !o->cache_salt || p->salt;
    if (o->suffix && !o->chat_prompt && !o->messages) {
        ok = ok && dg_infill_prompt(&words, o);
        asked.chat_prompt = words.data;
    }
    builder b = {.e = e, .o = &asked, .out = p, .err = err};
    dgemma_status st = ok ? build(&b) : dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    p->pictures.salt = p->salt;
    dg_buf_clear(&words);
    if (st) {
        dg_prompt_release(p);
        return st;
    }
    *out = p;
    return DGEMMA_OK;
}

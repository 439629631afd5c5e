#include "text/call_syntax.h"
#include <string.h>
#include "base/common.h"
#include "base/utf8.h"
#include "text/json_tree.h"

typedef struct reader {
    const char *at, *end;
    dg_buf *out;
    int depth;
    char close[DG_CALL_MAX_DEPTH]; /* [depth] what ends each level */
    bool finished;
    char quote;  /* a plain one that strings stood in, 0: none */
    bool round;  /* the arguments stand in round brackets */
    bool no_mem; /* the only reason why `out` does not take something */
} reader;

/* Functions that read return false when they do not find what they are for; the call is then not a
 * certain one, and nobody looks at what they left behind. */

static bool put(reader *r, const char *data, size_t n)
{
    if (!dg_buf_append(r->out, data, n))
        r->no_mem = true;
    return !r->no_mem;
}

static bool puts_out(reader *r, const char *s)
{
    return put(r, s, strlen(s));
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static const char *after_space(const char *at, const char *end)
{
    while (at < end && is_space(*at))
        at++;
    return at;
}

static void skip_space(reader *r)
{
    r->at = after_space(r->at, r->end);
}

static bool take(reader *r, char c)
{
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool is_one_of(char c, const char *set)
{
    return c && strchr(set, c);
}

static dg_text trim(const char *start, const char *end)
{
    start = after_space(start, end);
    while (end > start && is_space(end[-1]))
        end--;
    return (dg_text){start, (size_t)(end - start)};
}

/* ---- strings ---- */

static bool put_escaped(reader *r, char c)
{
    static const char hex[] = "0123456789abcdef";
    unsigned char u = (unsigned char)c;
    if (c == '"' || c == '\\')
        return put(r, (char[]){'\\', c}, 2);
    if (c == '\n')
        return put(r, "\\n", 2);
    if (c == '\t')
        return put(r, "\\t", 2);
    if (u < ' ')
        return put(r, (char[]){'\\', 'u', '0', '0', hex[u >> 4], hex[u & 15]}, 6);
    return put(r, &c, 1);
}

static bool put_string(reader *r, dg_text text)
{
    bool ok = put(r, "\"", 1);
    for (size_t i = 0; i < text.len && ok; i++)
        ok = put_escaped(r, text.data[i]);
    return ok && put(r, "\"", 1);
}

/* Four hexadecimal digits; -1 when they are not there. */
static int32_t hex_value(const char *at, const char *end)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    int32_t value = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const char *digit = at[i] ? strchr(digits, at[i]) : NULL;
        if (!digit)
            return -1;
        value = value * 16 + (int32_t)((digit - digits) & 15);
    }
    return value;
}

/* \uXXXX at `at`, or a pair of them for one character; returns what follows, NULL when it is none.
 * Halves of pairs become U+FFFD. */
static const char *put_unicode(reader *r, const char *at, const char *end)
{
    int32_t c = hex_value(at + 2, end);
    if (c < 0)
        return NULL;
    at += 6;
    if (c >= 0xD800 && c < 0xDC00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
        int32_t low = hex_value(at + 2, end);
        if (low >= 0xDC00 && low < 0xE000) {
            c = 0x10000 + (c - 0xD800) * 0x400 + (low - 0xDC00);
            at += 6;
        }
    }
    if (c >= 0xD800 && c < 0xE000)
        c = 0xFFFD;
    if (c < 0x80) {
        put_escaped(r, (char)c);
    } else {
        char bytes[4];
        put(r, bytes, dg_utf8_encode(bytes, (uint32_t)c));
    }
    return at;
}

/* A string with the escapes of JSON; a backslash before anything else is itself. */
static bool put_unescaped(reader *r, dg_text text)
{
    static const char names[] = "\"\\/'bfnrt", values[] = "\"\\/'\b\f\n\r\t";
    const char *at = text.data, *end = text.data + text.len;
    bool ok = put(r, "\"", 1);
    while (at < end && ok) {
        const char *name = NULL, *after = NULL;
        if (*at == '\\' && end - at >= 2 && at[1] == 'u')
            after = put_unicode(r, at, end);
        else if (*at == '\\' && end - at >= 2 && at[1])
            name = strchr(names, at[1]);
        if (after) {
            at = after;
            ok = !r->no_mem;
        } else {
            ok = put_escaped(r, name ? values[name - names] : *at);
            at += name ? 2 : 1;
        }
    }
    return ok && put(r, "\"", 1);
}

/* Whether the brackets in a text are those of the text alone: each one closed, none closed that it
 * did not open. */
static bool is_balanced(const reader *r, dg_text text)
{
    char open[DG_CALL_MAX_DEPTH];
    int n = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (!r->round && is_one_of(c, "()"))
            continue; /* they end nothing here */
        if (is_one_of(c, "{[(")) {
            if (n == DG_CALL_MAX_DEPTH)
                return false;
            open[n++] = c == '{' ? '}' : c == '[' ? ']' : ')';
        } else if (is_one_of(c, "}])") && (!n || open[--n] != c)) {
            return false;
        }
    }
    return n == 0;
}

/* Whether what looks like the next member stands in a text: a comma, a word and a colon; in a list
 * a comma is enough. */
static bool has_member(const reader *r, dg_text text)
{
    const char *end = text.data + text.len;
    if (r->depth && r->close[r->depth - 1] == ']')
        return memchr(text.data, ',', text.len);
    for (const char *at = text.data; at < end; at++) {
        if (*at != ',')
            continue;
        const char *word = after_space(at + 1, end), *after = word;
        while (after < end && !is_space(*after) && !is_one_of(*after, ",:={}[]()"))
            after++;
        if (after > word && after < end && (*after == ':' || (r->round && *after == '=')))
            return true;
    }
    return false;
}

/* Takes the brackets that end the n innermost levels off the end of a text; false: they are not
 * there. */
static bool drop_closes(const reader *r, int n, dg_text *text)
{
    for (int level = r->depth - n; level < r->depth; level++) {
        if (!text->len || text->data[text->len - 1] != r->close[level])
            return false;
        *text = trim(text->data, text->data + text->len - 1);
    }
    return true;
}

/* A string that nothing closes is the last thing in the call. Brackets at its end may be its own or
 * those of the call: there is at most one way to share them out that leaves each its pair. Where
 * there is none, or where another member seems to be inside, nobody knows what was meant. */
static bool take_rest(reader *r, dg_text *out)
{
    const char *start = r->at;
    if (!r->finished)
        return false;
    for (int n = 0; n <= r->depth; n++) {
        dg_text rest = trim(start, r->end);
        if (!drop_closes(r, n, &rest) || !is_balanced(r, rest))
            continue;
        r->at = rest.data + rest.len;
        *out = (dg_text){start, (size_t)(r->at - start)};
        return !has_member(r, *out);
    }
    return false;
}

/* A last one that a plain quote was meant to close, unless that closes one inside. */
static bool take_native_rest(reader *r, dg_text *out)
{
    if (!take_rest(r, out))
        return false;
    size_t n_quote = 0;
    for (size_t i = 0; i < out->len; i++)
        n_quote += out->data[i] == '"';
    if (n_quote % 2 && out->data[out->len - 1] == '"')
        out->len--;
    return true;
}

static bool take_native_string(reader *r, dg_text *out)
{
    const char *close = memchr(r->at, (unsigned char)DG_CALL_QUOTE, (size_t)(r->end - r->at));
    if (!close)
        return take_native_rest(r, out);
    *out = (dg_text){r->at, (size_t)(close - r->at)};
    r->at = close + 1;
    return true;
}

/* A plain quote closes the string only where one may end, so that 'it's' is one. */
static bool closes(const reader *r, const char *quote)
{
    const char *next = after_space(quote + 1, r->end);
    if (next < r->end && *next == ')' && !r->round)
        return after_space(next + 1, r->end) == r->end;
    return next == r->end || is_one_of(*next, r->round ? ",:}])=" : ",:}]");
}

static bool take_plain_string(reader *r, char quote, dg_text *out)
{
    r->quote = quote;
    for (const char *s = r->at; s < r->end; s++) {
        if (*s == '\\' && r->end - s >= 2 && s[1] != DG_CALL_QUOTE)
            s++;
        else if (*s == DG_CALL_QUOTE || (*s == quote && closes(r, s))) {
            *out = (dg_text){r->at, (size_t)(s - r->at)};
            r->at = s + 1;
            return true;
        }
    }
    /* a quote behind a backslash may have been meant to close it */
    return take_rest(r, out) && !(out->len && out->data[out->len - 1] == quote);
}

/* Any of the three kinds; *found says whether there is one. */
static bool read_string(reader *r, bool *found)
{
    dg_text text;
    *found = true;
    if (take(r, DG_CALL_QUOTE))
        return take_native_string(r, &text) && put_string(r, text);
    if (take(r, '"'))
        return take_plain_string(r, '"', &text) && put_unescaped(r, text);
    if (take(r, '\''))
        return take_plain_string(r, '\'', &text) && put_unescaped(r, text);
    *found = false;
    return false;
}

/* ---- bare values ---- */

static const char *after_digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

static bool is_number(dg_text text)
{
    const char *at = text.data, *end = text.data + text.len, *digits;
    at += at < end && *at == '-';
    digits = at;
    at = after_digits(at, end);
    if (at == digits || (*digits == '0' && at - digits > 1))
        return false;
    if (at < end && *at == '.') {
        digits = ++at;
        at = after_digits(at, end);
        if (at == digits)
            return false;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        at += at < end && (*at == '+' || *at == '-');
        digits = at;
        at = after_digits(at, end);
        if (at == digits)
            return false;
    }
    return at == end;
}

/* A round bracket ends a text where it ends the arguments, unless it was opened in the text. */
static bool ends_bare(const reader *r, const char *at, int n_open)
{
    if (*at == ')')
        return !n_open && (r->round || after_space(at + 1, r->end) == r->end);
    return *at == DG_CALL_QUOTE || is_one_of(*at, ",}]");
}

static const char *find_word(dg_text text)
{
    static const char *const words[][2] = {{"true", "true"},   {"True", "true"}, {"false", "false"},
                                           {"False", "false"}, {"null", "null"}, {"None", "null"}};
    for (size_t i = 0; i < DG_COUNT(words); i++)
        if (dg_text_is(text, words[i][0]))
            return words[i][1];
    return NULL;
}

static bool read_bare(reader *r)
{
    const char *start = r->at;
    int n_open = 0;
    while (r->at < r->end && !ends_bare(r, r->at, n_open)) {
        if (is_one_of(*r->at, "{[\""))
            return false;
        n_open += *r->at == '(' ? 1 : *r->at == ')' && n_open ? -1 : 0;
        r->at++;
    }
    dg_text text = trim(start, r->at);
    if (!text.len)
        return false;
    if (find_word(text))
        return puts_out(r, find_word(text));
    if (is_number(text))
        return put(r, text.data, text.len);
    /* is a bracket of the wrong kind behind a text the call's, or the text's? */
    bool wrong = r->at < r->end && *r->at == ')' && !r->round;
    return !wrong && put_string(r, text);
}

/* ---- lists and objects ---- */

static bool read_value(reader *r);

static bool read_key(reader *r)
{
    bool found;
    skip_space(r);
    if (read_string(r, &found)) {
        skip_space(r);
        return take(r, ':') || (r->round && take(r, '='));
    }
    if (found)
        return false;
    const char *start = r->at;
    while (r->at < r->end && *r->at != ':' && !(r->round && *r->at == '=')) {
        if (*r->at == DG_CALL_QUOTE || is_one_of(*r->at, ",{}[]()\"'\n"))
            return false;
        r->at++;
    }
    dg_text key = trim(start, r->at);
    if (r->at == r->end || !key.len)
        return false;
    r->at++;
    return put_string(r, key);
}

/* The bracket that ends this level, or what was meant for it: the outermost may be either kind. */
static bool take_close(reader *r, char close)
{
    if (take(r, close))
        return true;
    return close == '}' && r->depth == 1 && take(r, ')');
}

static bool read_members(reader *r, char close)
{
    if (r->depth == DG_CALL_MAX_DEPTH)
        return false;
    r->close[r->depth] = r->round && !r->depth ? ')' : close;
    r->depth++;
    bool ok = puts_out(r, close == '}' ? "{" : "["), first = true;
    while (ok) {
        skip_space(r);
        if (r->at == r->end && !r->finished)
            return false;
        if (r->at == r->end || take_close(r, close))
            break;
        if (!first)
            ok = put(r, ",", 1);
        first = false;
        if (ok && close == '}')
            ok = read_key(r) && put(r, ":", 1);
        if (!ok || !read_value(r))
            return false;
        skip_space(r);
        if (r->at < r->end && !take(r, ',') && *r->at != close && *r->at != ')')
            return false;
    }
    r->depth--;
    return ok && puts_out(r, close == '}' ? "}" : "]");
}

static bool read_value(reader *r)
{
    bool found;
    skip_space(r);
    if (r->at == r->end)
        return false;
    if (take(r, '{'))
        return read_members(r, '}');
    if (take(r, '['))
        return read_members(r, ']');
    bool ok = read_string(r, &found);
    return found ? ok : read_bare(r);
}

/* ---- the call ---- */

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           is_one_of(c, "_-.:/") || ((unsigned char)c >= 0x80 && c != DG_CALL_QUOTE);
}

/* "call:" or ":", with blanks; true when there was one. */
static bool skip_word(reader *r)
{
    const char *at = after_space(r->at, r->end);
    if (r->end - at >= 4 && memcmp(at, "call", 4) == 0)
        at = after_space(at + 4, r->end);
    if (at == r->end || *at != ':')
        return false;
    r->at = at + 1;
    return true;
}

static bool read_arguments(reader *r)
{
    if (take(r, '{'))
        return read_members(r, '}');
    if (!take(r, '('))
        return false;
    skip_space(r);
    if (take(r, '{')) {
        bool ok = read_members(r, '}');
        skip_space(r);
        take(r, ')');
        return ok;
    }
    r->round = true;
    return read_members(r, '}');
}

static bool read_native(reader *r, dg_buf *name)
{
    bool worded = skip_word(r);
    skip_space(r);
    const char *start = r->at;
    while (r->at < r->end && is_name_char(*r->at))
        r->at++;
    size_t n = (size_t)(r->at - start);
    if (!n || n > DG_CALL_MAX_NAME)
        return false;
    if (!dg_buf_append(name, start, n)) {
        r->no_mem = true;
        return false;
    }
    skip_space(r);
    if (r->at == r->end)
        return worded && r->finished && puts_out(r, "{}");
    return read_arguments(r);
}

static const dg_json *find_arguments(const dg_json *call)
{
    static const char *const keys[] = {"arguments", "parameters", "args", "input"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const dg_json *v = dg_json_get(call, keys[i]);
        if (v)
            return v;
    }
    return NULL;
}

static bool is_object_text(reader *r, dg_text text)
{
    dg_json_tree tree;
    dgemma_status st = dg_json_read(&tree, text.data, text.len, "arguments", NULL);
    r->no_mem = st == DGEMMA_E_NOMEM;
    bool is_object = !st && tree.root->kind == DG_JSON_OBJECT;
    dg_json_tree_clear(&tree);
    return is_object;
}

/* An object, the text of one, or none at all. */
static bool put_arguments(reader *r, const dg_json *v)
{
    if (!v || v->kind == DG_JSON_NULL || (v->kind == DG_JSON_STRING && !v->text.len))
        return puts_out(r, "{}");
    if (v->kind == DG_JSON_OBJECT)
        return put(r, v->source.data, v->source.len);
    return v->kind == DG_JSON_STRING && is_object_text(r, v->text) &&
           put(r, v->text.data, v->text.len);
}

/* {"name":…,"arguments":…}, also inside "function". */
static bool unwrap(reader *r, dg_buf *name, dg_text json)
{
    dg_json_tree tree;
    dgemma_status st = dg_json_read(&tree, json.data, json.len, "call", NULL);
    r->no_mem = st == DGEMMA_E_NOMEM;
    if (st)
        return false;
    const dg_json *inner = dg_json_get(tree.root, "function");
    const dg_json *call = inner && inner->kind == DG_JSON_OBJECT ? inner : tree.root;
    const dg_json *called = dg_json_get(call, "name");
    bool ok = called && called->kind == DG_JSON_STRING && called->text.len &&
              called->text.len <= DG_CALL_MAX_NAME && put_arguments(r, find_arguments(call));
    if (ok && !dg_buf_append(name, called->text.data, called->text.len))
        r->no_mem = true;
    dg_json_tree_clear(&tree);
    return ok && !r->no_mem;
}

static bool read_json(reader *r, dg_buf *name)
{
    dg_buf *out = r->out, json;
    dg_buf_init(&json, out->max);
    r->out = &json;
    bool ok = read_value(r);
    r->out = out;
    ok = ok && unwrap(r, name, (dg_text){json.data, json.len});
    dg_buf_clear(&json);
    return ok;
}

/* Behind strings in plain quotes: a quote that is left over, outside a further call, says that one
 * of them was thought to end too early. */
static bool leaves_quote(const reader *r)
{
    size_t left = (size_t)(r->end - r->at);
    const char *call = left ? memmem(r->at, left, "call:", 5) : NULL;
    return r->quote && left && memchr(r->at, r->quote, call ? (size_t)(call - r->at) : left);
}

dgemma_status dg_call_read(dg_text *body, bool finished, dg_buf *name, dg_buf *arguments)
{
    reader r = {
        .at = body->data, .end = body->data + body->len, .out = arguments, .finished = finished};
    dg_buf_clear(name);
    dg_buf_clear(arguments);
    reader word = r;
    skip_word(&word);
    skip_space(&word);
    bool is_json = word.at < word.end && *word.at == '{';
    if (is_json)
        r.at = word.at;
    bool ok = is_json ? read_json(&r, name) : read_native(&r, name);
    if (r.no_mem)
        return DGEMMA_E_NOMEM;
    if (!ok || leaves_quote(&r))
        return DGEMMA_E_ARG;
    *body = (dg_text){r.at, (size_t)(r.end - r.at)};
    return DGEMMA_OK;
}

#include "head.h"
#include <string.h>
#include <strings.h>

void dg_head_init(dg_head *h)
{
    *h = (dg_head){.state = DG_HEAD_MORE, .method = "", .path = "", .query = ""};
    dg_buf_init(&h->text, DG_HEAD_BYTES);
}

void dg_head_clear(dg_head *h)
{
    dg_buf_clear(&h->text);
}

bool dg_head_begun(const dg_head *h)
{
    return h->text.len || h->cr || h->was_blank;
}

static bool refuse(dg_head *h, int status, const char *why)
{
    h->state = DG_HEAD_BAD;
    h->status = status;
    h->code = "bad_request";
    h->why = why;
    return false;
}

void dg_head_give_up(dg_head *h, int status, const char *code, const char *why)
{
    refuse(h, status, why);
    h->code = code;
}

/* ---- what bytes may be where ---- */

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(unsigned char c)
{
    return (c | 32) >= 'a' && (c | 32) <= 'z';
}

bool dg_head_is_token(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_digit((unsigned char)text[i]) && !is_letter((unsigned char)text[i]) &&
            (!text[i] || !strchr("!#$%&'*+-.^_`|~", text[i])))
            return false;
    return n > 0;
}

int dg_hex_digit(char c)
{
    if (is_digit((unsigned char)c))
        return c - '0';
    char low = (char)(c | 32);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

static bool is_visible(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

/* Where letters, digits and those others end. */
static const char *behind_name(const char *text, const char *others)
{
    while (*text && (is_digit((unsigned char)*text) || is_letter((unsigned char)*text) ||
                     strchr(others, *text)))
        text++;
    return text;
}

/* A name or an address, that of IPv6 in brackets, and perhaps a port. */
static bool is_host(const char *text)
{
    if (*text == '[') {
        const char *end = behind_name(text + 1, ":.%-_~");
        if (*end != ']' || end == text + 1)
            return false;
        text = end + 1;
    } else {
        text = behind_name(text, ".-_~!$&'()*+;=");
    }
    size_t n_port = *text == ':' ? strspn(++text, "0123456789") : 0;
    return n_port <= 5 && !text[n_port];
}

/* ---- the first line ---- */

static const char *at(const dg_head *h, size_t offset)
{
    return h->text.data + offset;
}

/* %41 is A. */
static bool unescape(dg_head *h, char *text)
{
    char *to = text;
    for (; *text; to++) {
        *to = *text++;
        if (*to != '%')
            continue;
        int high = dg_hex_digit(text[0]), low = high < 0 ? -1 : dg_hex_digit(text[1]);
        if (low < 0)
            return refuse(h, 400, "the target has a % that no two hexadecimal digits follow");
        if (!(high | low))
            return refuse(h, 400, "the target has %00 in it, which no name or path can have");
        *to = (char)(high << 4 | low);
        text += 2;
    }
    *to = '\0';
    return true;
}

/* "http://host" becomes host, NUL and "/", for which the two slashes make room. Returns the path.
 */
static char *split_host(dg_head *h, char *target)
{
    char *host = strstr(target, "://") + 3;
    size_t n = strcspn(host, "/?");
    memmove(host - 2, host, n);
    h->host = (size_t)(host - 2 - h->text.data);
    char *end = host + n;
    end[-2] = '\0';
    end[-1] = '/';
    return *end == '/' ? end : end - 1;
}

/* "http://host/path?query", "/path?query", or "*": what is asked of the server as a whole. */
static bool take_target(dg_head *h, char *target)
{
    bool is_whole = !strncasecmp(target, "http://", 7) || !strncasecmp(target, "https://", 8);
    bool is_star = !strcmp(target, "*") && !strcmp(h->text.data, "OPTIONS");
    if (strchr(target, '#') || !is_visible(target))
        return refuse(h, 400, "the target has a byte that does not belong there");
    if (!is_whole && !is_star && *target != '/')
        return refuse(h, 400, "the target is no path");
    char *path = is_whole ? split_host(h, target) : target;
    if (is_whole && (!*at(h, h->host) || !is_host(at(h, h->host))))
        return refuse(h, 400, "the target names no host");
    size_t n = strcspn(path, "?");
    h->query_at = (size_t)(path + n + (path[n] == '?') - h->text.data);
    path[n] = '\0';
    h->path_at = (size_t)(path - h->text.data);
    return unescape(h, path);
}

static bool take_version(dg_head *h, const char *version)
{
    bool is_one = !strncmp(version, "HTTP/", 5) && is_digit((unsigned char)version[5]) &&
                  version[6] == '.' && is_digit((unsigned char)version[7]) && !version[8];
    if (!is_one)
        return refuse(h, 400, "the first line does not end with a version of HTTP");
    if (version[5] != '1')
        return refuse(h, 505, "of HTTP, versions 1.0 and 1.1 are spoken here");
    h->is_old = version[7] == '0';
    return true;
}

static bool take_request_line(dg_head *h, char *line)
{
    char *target = strchr(line, ' ');
    char *version = target ? strrchr(target + 1, ' ') : NULL;
    if (!version || !dg_head_is_token(line, (size_t)(target - line)))
        return refuse(h, 400, "the first line is not a method, a target and a version");
    *target++ = '\0';
    *version++ = '\0';
    h->n_method = strlen(line);
    return take_version(h, version) && take_target(h, target);
}

/* ---- fields ---- */

/* Spaces and tabs around a value do not belong to it; other controls belong nowhere. */
static bool take_value(dg_head *h, char *value)
{
    char *from = value + strspn(value, " \t"), *end = from + strlen(from);
    while (end > from && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *end = '\0';
    for (char *c = from; c < end; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 127)
            return refuse(h, 400, "a header has a control character in it");
    h->fields[h->n_field].value = (size_t)(from - h->text.data);
    return true;
}

static bool take_field(dg_head *h, char *line)
{
    char *colon = strchr(line, ':');
    if (*line == ' ' || *line == '\t')
        return refuse(h, 400, "a header goes on in the next line, which is not done any more");
    if (!colon || !dg_head_is_token(line, (size_t)(colon - line)))
        return refuse(h, 400, "a header is not a name, a colon at once, and a value");
    if (h->n_field == DG_HEAD_FIELDS)
        return refuse(h, 431, "there are too many headers");
    *colon = '\0';
    h->fields[h->n_field].name = (size_t)(line - h->text.data);
    if (!take_value(h, colon + 1))
        return false;
    h->n_field++;
    return true;
}

const char *dg_head_nth(const dg_head *h, const char *name, int n)
{
    for (int i = 0; i < h->n_field; i++)
        if (!strcasecmp(at(h, h->fields[i].name), name) && n-- == 0)
            return at(h, h->fields[i].value);
    return NULL;
}

const char *dg_head_get(const dg_head *h, const char *name)
{
    return dg_head_nth(h, name, 0);
}

const char *dg_head_host(const dg_head *h)
{
    return h->host ? at(h, h->host) : dg_head_get(h, "Host");
}

/* ---- all of it together ---- */

/* Who reads the first and who reads the last would not read the same. */
static bool check_singles(dg_head *h)
{
    static const char *const single[] = {"Host",   "Content-Length", "Transfer-Encoding",
                                         "Expect", "Authorization",  "X-Api-Key",
                                         "Origin", "Content-Type"};
    for (size_t k = 0; k < sizeof single / sizeof *single; k++) {
        int n = 0;
        for (int i = 0; i < h->n_field; i++)
            n += !strcasecmp(at(h, h->fields[i].name), single[k]);
        if (n > 1)
            return refuse(h, 400, "a header that may be there once is there twice");
    }
    return true;
}

static bool check_host(dg_head *h)
{
    const char *host = dg_head_get(h, "Host");
    if (!host && !h->is_old)
        return refuse(h, 400, "the header Host is missing");
    return !host || is_host(host) || refuse(h, 400, "the header Host is no name of a host");
}

/* Digits alone, and not so many that they overflow anything. */
static bool read_length(dg_head *h, const char *text)
{
    size_t n = strlen(text);
    if (!n || n > 18 || strspn(text, "0123456789") != n)
        return refuse(h, 400, "Content-Length is not one number");
    for (; *text; text++)
        h->length = h->length * 10 + (uint64_t)(*text - '0');
    return true;
}

static bool find_end_of_body(dg_head *h)
{
    const char *length = dg_head_get(h, "Content-Length");
    const char *coding = dg_head_get(h, "Transfer-Encoding");
    if (!coding)
        return !length || read_length(h, length);
    if (length)
        return refuse(h, 400, "there is a Content-Length and a Transfer-Encoding");
    if (h->is_old)
        return refuse(h, 400, "HTTP/1.0 has no Transfer-Encoding");
    h->is_chunked = !strcasecmp(coding, "chunked");
    return h->is_chunked || refuse(h, 400, "of transfer encodings only chunked is known");
}

/* Whether one of the fields of this name has the word in its list. */
static bool lists(const dg_head *h, const char *name, const char *word)
{
    size_t n = strlen(word);
    for (int i = 0; i < h->n_field; i++) {
        if (strcasecmp(at(h, h->fields[i].name), name) != 0)
            continue;
        for (const char *c = at(h, h->fields[i].value); *c; c += strcspn(c, ",")) {
            c += strspn(c, ", \t");
            if (!strncasecmp(c, word, n) && strchr(", \t", c[n]))
                return true;
        }
    }
    return false;
}

static bool finish(dg_head *h)
{
    if (!check_singles(h) || !check_host(h) || !find_end_of_body(h))
        return false;
    const char *expect = dg_head_get(h, "Expect");
    if (expect && strcasecmp(expect, "100-continue") != 0)
        return refuse(h, 417, "nothing but 100-continue can be expected");
    h->asks_first = expect && !h->is_old;
    h->keep_alive =
        !lists(h, "Connection", "close") && (!h->is_old || lists(h, "Connection", "keep-alive"));
    h->state = DG_HEAD_DONE;
    return true;
}

/* ---- bytes ---- */

/* There is no room for another byte. */
static void refuse_more(dg_head *h)
{
    if (h->text.len < h->text.max)
        refuse(h, 503, "out of memory");
    else if (h->line)
        refuse(h, 431, "the head is too large");
    else
        refuse(h, 414, "the target is too long");
}

/* A line has ended. */
static void take_line(dg_head *h)
{
    bool is_first = !h->line, is_empty = h->line == h->text.len;
    if (is_first && is_empty) {
        if (h->was_blank) /* one is forgiven: some clients send it behind a body */
            refuse(h, 400, "there are empty lines instead of a request");
        h->was_blank = true;
        return;
    }
    if (is_empty) {
        finish(h);
        return;
    }
    if (!dg_buf_append(&h->text, "", 1)) {
        refuse_more(h);
        return;
    }
    char *line = h->text.data + h->line;
    h->line = h->text.len;
    if (is_first)
        take_request_line(h, line);
    else
        take_field(h, line);
}

static void take_byte(dg_head *h, char c)
{
    if (h->cr && c == '\n') {
        h->cr = false;
        take_line(h);
    } else if (h->cr || c == '\n' || !c) {
        refuse(h, 400, "lines end with CR and LF, which are nowhere else, and NUL is nowhere");
    } else if (c == '\r') {
        h->cr = true;
    } else if (!dg_buf_append(&h->text, &c, 1)) {
        refuse_more(h);
    }
}

size_t dg_head_read(dg_head *h, const char *data, size_t n)
{
    size_t i = 0;
    while (i < n && h->state == DG_HEAD_MORE)
        take_byte(h, data[i++]);
    if (h->n_method) { /* the text moves while it grows */
        h->method = h->text.data;
        h->path = h->path_at ? at(h, h->path_at) : "";
        h->query = h->query_at ? at(h, h->query_at) : "";
    }
    return i;
}

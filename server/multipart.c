#include "multipart.h"
#include <string.h>
#include <strings.h>
#include "base/common.h"
#include "head.h"
#include "base/utf8.h"

enum { MAX_BOUNDARY = 70 /* RFC 2046 */, MAX_HEADERS = 8, MAX_HEADER = 1024 };

typedef struct reader {
    const char *at, *end;
    char mark[MAX_BOUNDARY + 5]; /* CR, LF, two dashes, the boundary */
    size_t n_mark;
    dg_http_error *e;
} reader;

static bool wrong(reader *r, const char *why)
{
    return dg_refuse(r->e, 400, "invalid_form", NULL, "the form cannot be read: %s", why);
}

/* ---- values of headers ---- */

/* `name="value"` or `name=token` behind a semicolon, at *at, which moves behind it. False: it is
 * something else, or longer than fits. */
static bool take_parameter(const char **at, char *name, size_t name_size, char *value, size_t size)
{
    const char *c = *at;
    c += strspn(c, " \t");
    if (*c++ != ';')
        return false;
    c += strspn(c, " \t");
    size_t n = strcspn(c, "= \t;\""), k = 0;
    if (!n || n >= name_size || c[n] != '=' || !dg_head_is_token(c, n))
        return false;
    memcpy(name, c, n);
    name[n] = '\0';
    c += n + 1;
    bool quoted = *c == '"';
    for (c += quoted; *c && (quoted ? *c != '"' : !strchr(" \t;\"", *c)); c++) {
        if (quoted && *c == '\\' && (c[1] == '"' || c[1] == '\\'))
            c++;
        if (k + 1 >= size)
            return false;
        value[k++] = *c;
    }
    value[k] = '\0';
    if (quoted && *c++ != '"')
        return false;
    *at = c;
    return quoted || k;
}

static bool read_boundary(reader *r, const char *content_type)
{
    static const char form[] = "multipart/form-data";
    char name[DG_PART_NAME], value[DG_FILENAME];
    const char *at = content_type ? content_type : "";
    if (strncasecmp(at, form, sizeof form - 1) != 0)
        return dg_refuse(r->e, 415, "unsupported_media_type", NULL,
                         "wanted a form with a file in it: Content-Type: multipart/form-data");
    for (at += sizeof form - 1; *at;) {
        if (!take_parameter(&at, name, sizeof name, value, sizeof value))
            return wrong(r, "Content-Type is not well formed");
        if (strcasecmp(name, "boundary") != 0)
            continue;
        size_t n = strlen(value);
        for (size_t i = 0; i < n; i++)
            if (value[i] <= ' ' || value[i] > '~')
                return wrong(r, "the boundary has a character that no boundary has");
        if (!n || n > MAX_BOUNDARY || r->n_mark)
            return wrong(r, "wanted one boundary of 1 to 70 characters");
        memcpy(r->mark, "\r\n--", 4);
        memcpy(r->mark + 4, value, n + 1);
        r->n_mark = n + 4;
    }
    return r->n_mark || wrong(r, "Content-Type names no boundary");
}

/* ---- parts ---- */

static bool skip(reader *r, const char *text, size_t n)
{
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n) != 0)
        return false;
    r->at += n;
    return true;
}

/* Its last part, as some clients send whole paths. The name is told to others, never opened. */
static bool keep_filename(reader *r, dg_part *p, const char *name)
{
    const char *last = name;
    for (const char *c = name; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 127)
            return wrong(r, "a file's name has a control character in it");
        if (*c == '/' || *c == '\\')
            last = c + 1;
    }
    if (!*last || !strcmp(last, ".") || !strcmp(last, ".."))
        return wrong(r, "a file has no name");
    if (!dg_utf8_valid(last, strlen(last)))
        return wrong(r, "a file's name is not UTF-8");
    memcpy(p->filename, last, strlen(last) + 1);
    return true;
}

static bool read_disposition(reader *r, dg_part *p, const char *value)
{
    char name[DG_PART_NAME], text[DG_FILENAME];
    const char *at = value;
    if (strncasecmp(at, "form-data", 9) != 0 || p->name[0])
        return wrong(r, "a part has another Content-Disposition than form-data");
    for (at += 9; *at;) {
        if (!take_parameter(&at, name, sizeof name, text, sizeof text))
            return wrong(r, "a Content-Disposition is not well formed, or too long");
        bool is_name = !strcasecmp(name, "name"), is_file = !strcasecmp(name, "filename");
        if (is_name && (p->name[0] || !*text || strlen(text) >= sizeof p->name))
            return wrong(r, "a part has no name, two, or a long one");
        if (is_name)
            memcpy(p->name, text, strlen(text) + 1);
        if (is_file && p->filename[0])
            return wrong(r, "a file has two names");
        if (is_file && !keep_filename(r, p, text))
            return false;
    }
    return p->name[0] || wrong(r, "a part has no name");
}

/* "Name: value", of which the body's own encoding is the only one. */
static bool read_header(reader *r, dg_part *p, const char *line, size_t n)
{
    char text[MAX_HEADER];
    if (n >= sizeof text || memchr(line, 0, n) || memchr(line, '\r', n))
        return wrong(r, "a part's header is too long, or has a byte in it that is nowhere");
    memcpy(text, line, n);
    text[n] = '\0';
    char *colon = strchr(text, ':');
    if (!colon || !dg_head_is_token(text, (size_t)(colon - text)))
        return wrong(r, "a part's header is not a name, a colon and a value");
    *colon++ = '\0';
    colon += strspn(colon, " \t");
    if (!strcasecmp(text, "Content-Disposition"))
        return read_disposition(r, p, colon);
    if (!strcasecmp(text, "Content-Transfer-Encoding") && strcasecmp(colon, "binary") != 0 &&
        strcasecmp(colon, "8bit") != 0 && strcasecmp(colon, "7bit") != 0)
        return wrong(r, "a part is encoded");
    return true;
}

static bool read_headers(reader *r, dg_part *p)
{
    for (int i = 0; i <= MAX_HEADERS; i++) {
        const char *end = memmem(r->at, (size_t)(r->end - r->at), "\r\n", 2);
        if (!end)
            return wrong(r, "it ends in the headers of a part");
        size_t n = (size_t)(end - r->at);
        const char *line = r->at;
        r->at = end + 2;
        if (!n)
            return p->name[0] || wrong(r, "a part has no name");
        if (!read_header(r, p, line, n))
            return false;
    }
    return wrong(r, "a part has too many headers");
}

/* From behind a boundary's line up to and behind the next one. */
static bool read_part(reader *r, dg_part *p)
{
    if (!read_headers(r, p))
        return false;
    const char *end = memmem(r->at, (size_t)(r->end - r->at), r->mark, r->n_mark);
    if (!end)
        return wrong(r, "a part has no end");
    p->data = r->at;
    p->len = (size_t)(end - r->at);
    r->at = end + r->n_mark;
    return true;
}

bool dg_multipart_read(dg_multipart *out, const char *content_type, const char *body, size_t len,
                       dg_http_error *e)
{
    reader r = {.at = body, .end = body + len, .e = e};
    *out = (dg_multipart){0};
    if (!read_boundary(&r, content_type))
        return false;
    if (!skip(&r, r.mark + 2, r.n_mark - 2))
        return wrong(&r, "it does not begin with its boundary");
    while (skip(&r, "\r\n", 2)) {
        if (out->n == DG_PARTS)
            return wrong(&r, "it has too many parts");
        dg_part p = {0};
        if (!read_part(&r, &p))
            return false;
        if (dg_multipart_get(out, p.name))
            return wrong(&r, "two parts have one name");
        out->parts[out->n++] = p;
    }
    if (!skip(&r, "--", 2))
        return wrong(&r, "what follows a boundary is neither a part nor the end");
    skip(&r, "\r\n", 2);
    return r.at == r.end || wrong(&r, "something follows its end");
}

const dg_part *dg_multipart_get(const dg_multipart *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++)
        if (!strcmp(m->parts[i].name, name))
            return &m->parts[i];
    return NULL;
}

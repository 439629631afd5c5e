#include "page.h"
#include <string.h>
#include "calls.h"

static const dg_header headers[] = {
    {"Content-Security-Policy", dg_page_policy},
    {"ETag", dg_page_etag},
    {"Cache-Control", "no-cache"}, /* asked for again each time, sent again when it has changed */
    {"Referrer-Policy", "no-referrer"},
    {NULL, NULL},
};

/* Proxies that pack what they pass on make the tag a weak one, W/"…". */
static bool has_this_one(const char *if_none_match)
{
    return if_none_match && (strstr(if_none_match, dg_page_etag) || !strcmp(if_none_match, "*"));
}

void dg_page_send(dg_call *c)
{
    bool known = has_this_one(dg_head_get(c->head, "If-None-Match"));
    c->x.headers = headers;
    dg_exchange_reply_text(&c->x, known ? 304 : 200, "text/html; charset=utf-8",
                           (const char *)dg_page, known ? 0 : dg_page_size);
}

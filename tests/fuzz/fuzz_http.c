/* Any bytes as what comes on a connection: a head, then a body. Whatever the pieces in which they
 * come, they mean the same; what is accepted has an end that can be seen in one way only. The first
 * byte says how large the pieces are. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "server/chunks.h"
#include "server/client_address.h"
#include "server/head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct result {
    dg_head head;
    dg_chunks chunks;
    size_t n_taken, n_body;
    uint64_t body_sum;
} result;

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void read_all(result *r, const char *data, size_t n, size_t piece)
{
    size_t at = 0;
    *r = (result){0};
    dg_head_init(&r->head);
    while (at < n && r->head.state == DG_HEAD_MORE)
        at += dg_head_read(&r->head, data + at, n - at < piece ? n - at : piece);
    while (at < n && r->head.state == DG_HEAD_DONE && r->head.is_chunked &&
           r->chunks.state < DG_CHUNKS_DONE) {
        size_t n_data, most = n - at < piece ? n - at : piece;
        size_t used = dg_chunks_read(&r->chunks, data + at, most, &n_data);
        require(used <= most && n_data <= used && used);
        for (size_t i = 0; i < n_data; i++)
            r->body_sum = r->body_sum * 31 + (unsigned char)data[at + used - n_data + i];
        r->n_body += n_data;
        at += used;
    }
    r->n_taken = at;
}

static int count_fields(const dg_head *h, const char *name)
{
    int n = 0;
    for (int i = 0; i < h->n_field; i++)
        n += !strcasecmp(h->text.data + h->fields[i].name, name);
    return n;
}

static void check_head(const dg_head *h, const char *data, size_t n)
{
    if (h->state == DG_HEAD_BAD)
        require(h->status >= 400 && h->status < 600 && h->why);
    if (h->state != DG_HEAD_DONE)
        return;
    require(dg_head_is_token(h->method, strlen(h->method)) && *h->path);
    require(!memchr(data, 0, n)); /* of the head */
    require(count_fields(h, "Content-Length") + count_fields(h, "Transfer-Encoding") <= 1);
    require(count_fields(h, "Host") == 1 || (h->is_old && !count_fields(h, "Host")));
    require(h->is_chunked == (count_fields(h, "Transfer-Encoding") == 1));
    require(!h->is_chunked || (!h->is_old && !h->length));
    require(h->is_old || dg_head_host(h));
    for (int i = 0; i < h->n_field; i++) {
        const char *name = h->text.data + h->fields[i].name;
        require(dg_head_is_token(name, strlen(name)));
        require(!strpbrk(h->text.data + h->fields[i].value, "\r\n"));
    }
}

/* Whoever is trusted, a client is one that can be told; and who trusts nobody hears what the socket
 * says. */
static void check_client(const dg_head *h)
{
    static const char *const trusted[] = {"", "127.0.0.1,10.0.0.0/8,fd00::/8", "0.0.0.0/0,::/0"};
    const dg_address here = {{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
    for (size_t i = 0; i < sizeof trusted / sizeof *trusted; i++) {
        dg_proxies proxies;
        char text[DG_ADDRESS_TEXT];
        require(!dg_proxies_read(&proxies, trusted[i], NULL));
        dg_address client = dg_client_address(&proxies, here, h);
        dg_address_print(text, client);
        require(strlen(text) < sizeof text && strspn(text, "0123456789abcdef.:") == strlen(text));
        require(i || !memcmp(&client, &here, sizeof here));
    }
}

static size_t head_bytes(const char *data, size_t n)
{
    for (size_t i = 3; i < n; i++)
        if (!memcmp(data + i - 3, "\r\n\r\n", 4))
            return i + 1;
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    const char *text = (const char *)data + 1;
    result whole, pieces;
    read_all(&whole, text, size - 1, size);
    read_all(&pieces, text, size - 1, 1 + data[0] % 64);
    check_head(&whole.head, text, head_bytes(text, size - 1));
    check_client(&whole.head);
    require(whole.head.state == pieces.head.state && whole.head.status == pieces.head.status);
    require(whole.head.length == pieces.head.length && whole.n_taken == pieces.n_taken);
    require(!strcmp(whole.head.method, pieces.head.method) &&
            !strcmp(whole.head.path, pieces.head.path));
    require(whole.chunks.state == pieces.chunks.state && whole.n_body == pieces.n_body &&
            whole.body_sum == pieces.body_sum);
    dg_head_clear(&whole.head);
    dg_head_clear(&pieces.head);
    return 0;
}

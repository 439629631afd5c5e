/* Any bytes as a form: the first line is its Content-Type, the rest its body. It is refused with a
 * code and a message, or its parts lie in the body, one behind the other, with names of their own.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "server/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char type[256] = "";
    const char *text = (const char *)data, *end = size ? memchr(data, '\n', size) : NULL;
    dg_multipart m;
    dg_http_error e = {0};
    if (!end || end - text >= (ptrdiff_t)sizeof type)
        return 0;
    memcpy(type, text, (size_t)(end - text));
    const char *at = end + 1;
    if (!dg_multipart_read(&m, type, at, size - (size_t)(at - text), &e)) {
        require(e.status >= 400 && e.code && e.message[0]);
        return 0;
    }
    for (size_t i = 0; i < m.n; i++) {
        const dg_part *p = &m.parts[i];
        require(p->name[0] && dg_multipart_get(&m, p->name) == p);
        require(p->data >= at && p->data + p->len <= text + size);
        require(!strpbrk(p->filename, "/\\\r\n") &&
                dg_utf8_valid(p->filename, strlen(p->filename)));
        at = p->data + p->len;
    }
    return 0;
}

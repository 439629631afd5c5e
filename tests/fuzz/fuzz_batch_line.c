/* Any bytes as a line of a batch, and as a line of its answers: it is refused with a code and a
 * message, or says what is asked; an answer that is found has a name that can be one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "server/batch_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    char name[DG_CUSTOM_ID_BYTES + 1], mark[DG_BATCH_MARK + 1];
    dg_batch_line l;
    dg_http_error e = {0};
    if (dg_batch_line_read(&l, text, size, &e))
        require(l.custom_id && json_is_object(l.body) && l.route->generates &&
                strlen(l.mark) == DG_BATCH_MARK);
    else
        require(e.status >= 400 && e.code && e.message[0]);
    if (l.custom_id)
        require(*l.custom_id && strlen(l.custom_id) <= DG_CUSTOM_ID_BYTES);
    dg_batch_line_clear(&l);
    if (dg_batch_answer_read(text, size, name, mark))
        require(strlen(name) <= DG_CUSTOM_ID_BYTES && strlen(mark) == DG_BATCH_MARK &&
                dg_batch_answer_begins(text, size));
    return 0;
}

#include "engine/infill_prompt.h"
#include <string.h>

/* What is quoted of a text, in bytes: of what the canvas has no room for, the model learns here. */
enum { MOST_QUOTED = 4000 };

static bool quote(dg_buf *out, const char *label, const char *text)
{
    size_t len = strlen(text), cut = len;
    if (!len)
        return true;
    if (len > MOST_QUOTED)
        for (cut = MOST_QUOTED; cut && ((unsigned char)text[cut] & 0xC0) == 0x80;)
            cut--;
    return dg_buf_puts(out, label) && dg_buf_puts(out, "\n\n") && dg_buf_append(out, text, cut) &&
           dg_buf_puts(out, cut < len ? "…\n\n" : "\n\n");
}

bool dg_infill_prompt(dg_buf *out, const dgemma_request_options *o)
{
    bool anew = o->passage && *o->passage;
    const char *how = o->instruction ? o->instruction : anew ? "Use other words." : "";
    bool ok = anew ? dg_buf_puts(out, "Write one passage of a text anew. ")
                   : dg_buf_puts(out, "A text has a gap. Write the text with what is missing. ");
    ok = ok && dg_buf_puts(out, how) && dg_buf_puts(out, "\n\n");
    ok = ok && (!anew || quote(out, "The passage as it was:", o->passage));
    ok = ok &&
         quote(out, anew ? "Behind it the text goes on:" : "Behind the gap it goes on:", o->suffix);
    return ok && dg_buf_puts(out, "Write nothing but the text, from its beginning to its end.") &&
           dg_buf_append(out, "", 1);
}

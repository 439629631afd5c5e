/* Any text in any frames on any screen: nothing but the escapes of the view reaches the terminal,
 * frames stay inside the screen, and the terminal's state is as it was after each of them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"
#include "cli/canvas_view.h"
#include "cli/cells.h"
#include "pty/vt_screen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static vt_screen screen;

static void show(dg_buf *out, bool ok)
{
    require(ok);
    require(!out->len || dg_utf8_valid(out->data, out->len));
    vt_write(&screen, out->data ? out->data : "", out->len);
    require(!screen.mistake[0]);
    require(screen.autowrap && !screen.synchronized && !screen.attributes);
    out->len = 0;
}

/* The first byte of each record says what happens, the next how much of the input it takes. */
static void play(cli_canvas_view *v, const char *data, size_t size)
{
    dg_buf out;
    dg_buf_init(&out, 8 << 20);
    for (size_t i = 0; i + 2 <= size;) {
        unsigned what = (unsigned char)data[i], n = (unsigned char)data[i + 1];
        i += 2;
        n = n < size - i ? n : (unsigned)(size - i);
        cli_span spans[2] = {{data + i, n / 2, (cli_style)(what / 8 % CLI_N_STYLE)},
                             {data + i + n / 2, n - n / 2, CLI_UNSETTLED}};
        if (what % 8 < 4) {
            show(&out, cli_view_frame(v, spans, 2, what % 2 ? "status" : "", &out));
            require(v->drawn >= 0 && v->drawn < v->rows && v->column < v->columns);
        } else if (what % 8 < 7)
            show(&out, cli_view_text(v, data + i, n, spans[0].style, &out));
        else {
            int columns = 2 + (int)n % 60, rows = 1 + (int)(what / 8);
            vt_resize(&screen, columns, rows);
            show(&out, cli_view_resize(v, columns, rows, &out));
            n = 0;
        }
        require(v->column >= 0 && v->column <= v->columns);
        i += n;
    }
    show(&out, cli_view_erase(v, &out));
    dg_buf_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    cli_canvas_view view;
    int columns = 2 + data[0] % 100, rows = 1 + data[1] % 30;
    vt_init(&screen, columns, rows);
    cli_view_init(&view, columns, rows, data[0] & 1);
    play(&view, (const char *)data + 2, size - 2);
    vt_clear(&screen);
    return 0;
}

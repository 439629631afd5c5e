/* Text as cells, and the frames made of it: cli/cells.c, cli/canvas_view.c. */
#include <string.h>
#include "base/utf8.h"
#include "cli/canvas_view.h"
#include "cli/cells.h"
#include "pty/vt_screen.h"
#include "suites.h"

START_TEST(widths)
{
    static const struct {
        uint32_t c;
        int width;
    } cases[] = {
        {'a', 1},     {' ', 1},     {0, 0},        {0x1B, 0},    {0x7F, 0},   {0xE9, 1},
        {0xAD, 1},    {0x300, 0},   {0x301, 0},    {0x5D0, 1},   {0x5B0, 0},  {0x627, 1},
        {0x64B, 0},   {0x1100, 2},  {0x1160, 0},   {0x200B, 0},  {0x200D, 0}, {0x2026, 1},
        {0x2500, 1},  {0x3000, 2},  {0x3042, 2},   {0x3099, 0},  {0x4E00, 2}, {0x9FFF, 2},
        {0xAC00, 2},  {0xFE0F, 0},  {0xFF01, 2},   {0xFF61, 1},  {0xFFFD, 1}, {0x1F600, 2},
        {0x20000, 2}, {0xE0001, 0}, {0x10FFFF, 1}, {0x3FFFE, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_msg(cli_char_width(cases[i].c) == cases[i].width, "U+%04X has width %d",
                      (unsigned)cases[i].c, cli_char_width(cases[i].c));
}
END_TEST

static void check_safe(const char *text, size_t n, const char *want)
{
    dg_buf out;
    dg_buf_init(&out, 1 << 16);
    ck_assert(cli_safe_append(&out, text, n));
    ck_assert_str_eq(out.data ? out.data : "", want);
    dg_buf_clear(&out);
}

START_TEST(safe_text)
{
    check_safe("plain text\n\tand more", 20, "plain text\n\tand more");
    check_safe("\033[2J\033]0;x\007", 10, "\u241B[2J\u241B]0;x\u2407");
    check_safe("\0\r\r\n\x7F", 5, "\u2400\u240D\n\u2421");
    check_safe("\xC2\x9B"
               "31m",
               5, "\uFFFD31m"); /* the escape that is one character */
    check_safe("\xFF\xC3", 2, "\uFFFD\uFFFD");
    check_safe("\xED\xA0\x80", 3, "\uFFFD\uFFFD\uFFFD"); /* a surrogate */
    check_safe("a\u202Eb\u2066c\u2069d", 13, "abcd");    /* nothing turns what follows */
    check_safe("a\u2028b", 5, "a b");
    check_safe("\u05E9\u05DC e\u0301 \u4E2D", 12, "\u05E9\u05DC e\u0301 \u4E2D");
}
END_TEST

/* Nothing of any two bytes, alone or after an escape, is a control character afterwards. */
START_TEST(nothing_unsafe_of_any_bytes)
{
    for (int a = 0; a < 256; a++)
        for (int b = 0; b < 256; b++) {
            char text[] = {'\033', (char)a, (char)b, 'm'};
            dg_buf out;
            dg_buf_init(&out, 64);
            ck_assert(cli_safe_append(&out, text, sizeof text));
            ck_assert(dg_utf8_valid(out.data, out.len));
            for (size_t i = 0; i < out.len; i++) {
                unsigned char c = (unsigned char)out.data[i];
                ck_assert(c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7F));
                ck_assert(c != 0xC2 || (unsigned char)out.data[i + 1] >= 0xA0);
            }
            dg_buf_clear(&out);
        }
}
END_TEST

/* ---- frames on a screen ---- */

static vt_screen screen;

static void show(dg_buf *out)
{
    vt_write(&screen, out->data ? out->data : "", out->len);
    ck_assert_str_eq(screen.mistake, "");
    out->len = 0;
}

static void frame(cli_canvas_view *v, const char *settled, const char *unsettled,
                  const char *status)
{
    dg_buf out;
    dg_buf_init(&out, 1 << 20);
    cli_span spans[] = {{settled, strlen(settled), CLI_SETTLED},
                        {unsettled, strlen(unsettled), CLI_UNSETTLED}};
    ck_assert(cli_view_frame(v, spans, 2, status, &out));
    show(&out);
    dg_buf_clear(&out);
}

static void finished(cli_canvas_view *v, const char *text)
{
    dg_buf out;
    dg_buf_init(&out, 1 << 20);
    ck_assert(cli_view_text(v, text, strlen(text), CLI_SETTLED, &out));
    show(&out);
    dg_buf_clear(&out);
}

static void check_rows(const char *const *want, int n)
{
    for (int y = 0; y < n; y++)
        ck_assert_str_eq(vt_row_text(&screen, y), want[y]);
    for (int y = n; y < screen.rows; y++)
        ck_assert_str_eq(vt_row_text(&screen, y), "");
}

#define CHECK_ROWS(...)                                                                            \
    check_rows((const char *[]){__VA_ARGS__}, sizeof(const char *[]){__VA_ARGS__} / sizeof(char *))

static void begin(cli_canvas_view *v, int columns, int rows, bool color)
{
    vt_clear(&screen);
    vt_init(&screen, columns, rows);
    cli_view_init(v, columns, rows, color);
}

static void end_frames(void)
{
    vt_clear(&screen);
}

START_TEST(frames_replace_each_other)
{
    cli_canvas_view v;
    begin(&v, 10, 8, false);
    frame(&v, "one two three four", "xy z", "step 1");
    CHECK_ROWS("one two", "three", "four\u00B7\u00B7 \u00B7", "step 1");
    frame(&v, "short", "", "a status that is longer");
    CHECK_ROWS("short", "a status");
    finished(&v, "done. ");
    CHECK_ROWS("done.");
    frame(&v, "more and more", "", "step 2"); /* begins where the text ends */
    CHECK_ROWS("done. more", "and more", "step 2");
    finished(&v, "last\nline");
    CHECK_ROWS("done. last", "line");
}
END_TEST

START_TEST(styles)
{
    cli_canvas_view v;
    begin(&v, 20, 8, true);
    frame(&v, "sure", "maybe", "step 1");
    CHECK_ROWS("suremaybe", "step 1");
    ck_assert_int_eq(screen.row[0].cell[0].attributes, 0);
    ck_assert_int_eq(screen.row[0].cell[4].attributes, VT_DIM | VT_COLOR);
    ck_assert_int_eq(screen.row[1].cell[0].attributes, VT_DIM);
    ck_assert_uint_eq(screen.attributes, 0);
}
END_TEST

START_TEST(wide_and_joining)
{
    cli_canvas_view v;
    begin(&v, 5, 8, false);
    frame(&v, "\u65E5\u672C\u8A9E e\u0301e\u0301", "", "");
    CHECK_ROWS("\u65E5\u672C",
               "\u8A9E e\u0301e\u0301"); /* a wide one does not fit into one column */
    frame(&v, "abcd", "\u65E5", "");
    CHECK_ROWS("abcd", "\u00B7\u00B7");
    finished(&v, "abcd\u65E5x");
    CHECK_ROWS("abcd", "\u65E5x");
    ck_assert_int_eq(v.column, 3);
}
END_TEST

/* Right-to-left letters are isolated, and nothing is left open at the end of a row. */
START_TEST(right_to_left)
{
    cli_canvas_view v;
    begin(&v, 12, 8, false);
    dg_buf out;
    dg_buf_init(&out, 1 << 16);
    const char *text = "ab \u05D0\u05D1 \u05D2. cd \u05D3\u05D4\u05D5\u05D6";
    ck_assert(cli_view_frame(&v, &(cli_span){text, strlen(text), CLI_SETTLED}, 1, "", &out));
    ck_assert(strstr(out.data, "ab \u2068\u05D0\u05D1 \u05D2. \u2069cd"));
    int open = 0;
    for (const char *c = out.data; *c; c++) {
        open += !strncmp(c, "\u2068", 3) - !strncmp(c, "\u2069", 3);
        ck_assert(open == 0 || open == 1);
        ck_assert(*c != '\r' || !open);
    }
    ck_assert_int_eq(open, 0);
    dg_buf_clear(&out);
}
END_TEST

START_TEST(too_small_a_screen)
{
    cli_canvas_view v;
    begin(&v, 6, 4, false);
    finished(&v, "text\n");
    frame(&v, "one two three four five six seven", "", "status");
    CHECK_ROWS("text", "one", "two", "statu");
    frame(&v, "a", "", "s");
    CHECK_ROWS("text", "a", "s");
    begin(&v, 1, 1, false); /* taken for 2 columns */
    frame(&v, "a\nb", "c", "s");
    ck_assert_int_eq(v.drawn, 0);
}
END_TEST

START_TEST(a_full_row)
{
    cli_canvas_view v;
    begin(&v, 6, 6, false);
    finished(&v, "abcdef"); /* the terminal has not wrapped yet */
    frame(&v, "ghi", "", "s");
    CHECK_ROWS("abcdef", "ghi", "s");
    finished(&v, "jk");
    CHECK_ROWS("abcdef", "jk");
}
END_TEST

START_TEST(scrolling)
{
    cli_canvas_view v;
    begin(&v, 10, 4, false);
    finished(&v, "1\n2\n3\n4");
    frame(&v, " a\nb", "", "status"); /* pushes the first rows out */
    CHECK_ROWS("3", "4 a", "b", "status");
    finished(&v, "\n5");
    CHECK_ROWS("3", "4", "5");
    dg_buf all;
    vt_transcript(&screen, &all);
    ck_assert_str_eq(all.data, "1\n2\n3\n4\n5");
    dg_buf_clear(&all);
}
END_TEST

START_TEST(resizing)
{
    cli_canvas_view v;
    begin(&v, 20, 6, false);
    finished(&v, "finished ");
    frame(&v, "and a canvas of two rows", "", "status");
    vt_resize(&screen, 12, 6);
    dg_buf out;
    dg_buf_init(&out, 1 << 16);
    ck_assert(cli_view_resize(&v, 12, 6, &out));
    show(&out);
    CHECK_ROWS("finished");
    frame(&v, "and a canvas of two rows", "", "status");
    CHECK_ROWS("finished", "and a canvas", "of two rows", "status");
    dg_buf_clear(&out);
}
END_TEST

/* Terminals that wrap what has become too long: nothing of the frame is left there, either. */
START_TEST(resizing_with_rows_that_wrap)
{
    static const int narrow[] = {5, 6, 7, 9, 10, 11, 16, 19, 23, 60};
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0]; i++) {
        cli_canvas_view v;
        begin(&v, 20, 30, false);
        screen.reflows = true;
        finished(&v, "told\n1234567890 4567");
        frame(&v, "8 and a canvas of three rows, or more of them", "xy z", "block 1, step 3");
        vt_resize(&screen, narrow[i], 30);
        dg_buf out;
        dg_buf_init(&out, 1 << 16);
        ck_assert(cli_view_resize(&v, narrow[i], 30, &out));
        show(&out);
        dg_buf_clear(&out);
        dg_buf all;
        vt_transcript(&screen, &all);
        ck_assert_msg(!strcmp(all.data, "told\n1234567890 4567"), "%d: %s", narrow[i], all.data);
        dg_buf_clear(&all);
        end_frames();
    }
}
END_TEST

/* Words are whole at the edge, in whatever pieces they come. */
START_TEST(words)
{
    static const char text[] = "Paris and Berlin are fine towns, e\u0301t\u0301e\u0301 too.  So it "
                               "is with Pfaffenhofen an der Ilm.";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        cli_canvas_view v;
        begin(&v, 12, 12, false);
        for (size_t i = 0; i < sizeof text - 1; i += piece) {
            dg_buf out;
            size_t n = piece < sizeof text - 1 - i ? piece : sizeof text - 1 - i;
            if (((unsigned char)text[i] | (unsigned char)text[i + n]) & 0x80)
                break; /* inside a character */
            dg_buf_init(&out, 1 << 16);
            ck_assert(cli_view_text(&v, text + i, n, CLI_SETTLED, &out));
            show(&out);
            dg_buf_clear(&out);
            if (i + n == sizeof text - 1)
                CHECK_ROWS("Paris and", "Berlin are", "fine towns,",
                           "e\u0301t\u0301e\u0301 too.  So", "it is with", "Pfaffenhofen",
                           "an der Ilm.");
        }
        end_frames();
    }
    cli_canvas_view v;
    begin(&v, 6, 8, false);
    finished(&v, "a Pfaffenhofen b"); /* has no room anywhere */
    CHECK_ROWS("a", "Pfaffe", "nhofen", "b");
    finished(&v, " c\u65E5\u672C");
    CHECK_ROWS("a", "Pfaffe", "nhofen", "b c\u65E5", "\u672C");
    begin(&v, 6, 8, false);
    v.plain = true; /* left to the terminal */
    finished(&v, "one two three");
    CHECK_ROWS("one tw", "o thre", "e");
}
END_TEST

START_TEST(tabs)
{
    cli_canvas_view v;
    begin(&v, 20, 4, false);
    finished(&v, "a\tb\t\tc");
    CHECK_ROWS("a       b", "c");
    begin(&v, 20, 4, false);
    frame(&v, "a\tb", "", "");
    CHECK_ROWS("a       b");
}
END_TEST

START_TEST(a_full_buffer)
{
    cli_canvas_view v;
    dg_buf out;
    begin(&v, 20, 4, true);
    dg_buf_init(&out, 40);
    cli_span span = {"a long text that does not fit into the buffer", 45, CLI_UNSETTLED};
    ck_assert(!cli_view_frame(&v, &span, 1, "status", &out));
    ck_assert(!cli_view_text(&v, span.text, span.len, CLI_SETTLED, &out));
    dg_buf_clear(&out);
}
END_TEST

Suite *cells_suite(void)
{
    Suite *s = suite_create("cells");
    TCase *text = tcase_create("text"), *frames = tcase_create("frames");
    tcase_add_test(text, widths);
    tcase_add_test(text, safe_text);
    tcase_add_test(text, nothing_unsafe_of_any_bytes);
    tcase_add_checked_fixture(frames, NULL, end_frames);
    tcase_add_test(frames, frames_replace_each_other);
    tcase_add_test(frames, styles);
    tcase_add_test(frames, wide_and_joining);
    tcase_add_test(frames, right_to_left);
    tcase_add_test(frames, too_small_a_screen);
    tcase_add_test(frames, a_full_row);
    tcase_add_test(frames, scrolling);
    tcase_add_test(frames, words);
    tcase_add_test(frames, resizing_with_rows_that_wrap);
    tcase_add_test(frames, resizing);
    tcase_add_test(frames, tabs);
    tcase_add_test(frames, a_full_buffer);
    suite_add_tcase(s, text);
    suite_add_tcase(s, frames);
    return s;
}

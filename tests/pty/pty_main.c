/* dgemma chat on a pseudo-terminal: keys go in, and the screen is compared with what it should
 * show. From the environment: DGEMMA.
 *
 *   pty_tests [CASE]        all, or one */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/file.h"
#include "cli/cells.h"
#include "pty_session.h"
#include "support/temp_dir.h"

#define MODEL "tests/fixtures/golden/sampler_finishes/model"
#define LONG  "-n", "4000", "--steps", "1000" /* an answer that is there to be interrupted */

enum { MAX_ARGS = 32 };

static const char *program;
static char state_folder[DG_TEST_PATH + 16], state_variable[DG_TEST_PATH + 48];
static char file_path[DG_TEST_PATH + 16];
static pty_session session;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                 \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

/* It may take the program a moment to come to that. */
#define CHECK_SOON(condition)                                                                      \
    do {                                                                                           \
        for (double end = pty_patience(); !(condition) && pty_look_again(&session, end);)          \
            ;                                                                                      \
        CHECK(condition);                                                                          \
    } while (0)

/* ---- a session with the chat ---- */

static void start_with(int columns, int rows, const char *variable, char *const *more)
{
    const char *env[] = {
        "TERM=xterm", "NO_COLOR=", "LC_ALL=C.UTF-8", state_variable, "EDITRC=/dev/null",
        variable,     NULL};
    char *argv[MAX_ARGS] = {(char *)program, "chat", "-m",      MODEL,
                            "--t-max",       "1.6",  "--t-min", "0.3"};
    int n = 8;
    while (*more && n < MAX_ARGS - 1)
        argv[n++] = *more++;
    pty_start(&session, columns, rows, env, argv);
}

#define START(columns, rows, ...)                                                                  \
    start_with(columns, rows, NULL, (char *[]){"--pace", "2", __VA_ARGS__, NULL})

/* Sends a line and waits for what it should bring (NULL: anything), and the next prompt. */
static bool ask(const char *line, const char *wanted)
{
    size_t from = pty_length(&session);
    pty_send(&session, line);
    pty_send(&session, "\r");
    return (!wanted || pty_wait_new(&session, from ? from - 1 : 0, wanted)) &&
           pty_wait_prompt(&session);
}

static bool transcript_has(const char *text)
{
    return pty_shows(&session, text, true);
}

/* What /save has written has this in it. */
static bool saved_has(const char *text)
{
    dg_buf saved;
    dg_buf_init(&saved, 1 << 20);
    bool there = dg_file_read(&saved, file_path, NULL) == DGEMMA_OK && strstr(saved.data, text);
    dg_buf_clear(&saved);
    return there;
}

/* The row of the cursor. */
static const char *line(void)
{
    return vt_row_text(&session.screen, session.screen.y);
}

/* The row under it; not for the last row of the screen. */
static const char *below(void)
{
    return vt_row_text(&session.screen, session.screen.y + 1);
}

/* Ctrl-D: it leaves, and the terminal is as it was. */
static bool leaves(void)
{
    pty_send(&session, "\004");
    CHECK(pty_wait_end(&session));
    CHECK(WIFEXITED(session.status) && WEXITSTATUS(session.status) == 0);
    CHECK(pty_modes_are_back(&session));
    /* its last words may still be under way */
    CHECK_SOON(session.screen.cursor_visible && session.screen.autowrap &&
               !session.screen.synchronized);
    CHECK_SOON(session.screen.attributes == 0 && session.screen.x == 0);
    return true;
}

/* What `dgemma run` answers, as a terminal may show it. */
static bool expected_answer(const char *options, const char *prompt, dg_buf *out)
{
    char command[1024];
    snprintf(command, sizeof command,
             "%s run -q -m " MODEL " --t-max 1.6 --t-min 0.3 %s '%s' 2>/dev/null </dev/null",
             program, options, prompt);
    FILE *f = popen(command, "r");
    char bytes[65536];
    size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
    dg_buf_init(out, 1 << 20);
    bool ok = f && pclose(f) == 0 && n > 1 && cli_safe_append(out, bytes, n - 1);
    return ok && !strchr(out->data, '\t'); /* tabs are blanks on a screen */
}

/* ---- the cases ---- */

static bool editing_keys(void)
{
    START(80, 24, "-n", "16");
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "hllo");
    pty_send(&session, "\033[D\033[D\033[De"); /* left three times */
    CHECK_SOON(!strcmp(line(), "> hello") && session.screen.x == 4);
    pty_send(&session, "\001/systm \005 world"); /* to the beginning, to the end */
    CHECK_SOON(!strcmp(line(), "> /systm hello world"));
    pty_send(&session, "\033[H\033[C\033[C\033[C\033[C\033[Ce"); /* Home and right */
    pty_send(&session, "\033[F\177!\027there");                  /* End, Backspace, a word back */
    CHECK_SOON(!strcmp(line(), "> /system hello there"));
    pty_send(&session, "\033[1;5D\033[3~T"); /* a word to the left, Delete */
    CHECK(ask("", "System message: hello There"));
    return leaves();
}

/* Longer than the screen is wide, and changed at its beginning, where every row moves. */
static bool long_line(void)
{
    START(20, 10, "-n", "16");
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "systm 0123456789 abcdefghij 0123456789");
    pty_send(&session, "\001/\033[C\033[C\033[C\033[Ce\005!");
    CHECK_SOON(!strcmp(line(), "89!") && session.screen.x == 3);
    int y = session.screen.y;
    CHECK(y >= 2);
    CHECK(!strcmp(vt_row_text(&session.screen, y - 2), "> /system 0123456789"));
    CHECK(!strcmp(vt_row_text(&session.screen, y - 1), " abcdefghij 01234567"));
    CHECK(!strcmp(vt_row_text(&session.screen, y), "89!"));
    CHECK(ask("", "0123456789!"));
    CHECK(transcript_has("System message: 0123456789 abcdefghij 0123456789!"));
    return leaves();
}

static bool history_and_search(void)
{
    START(80, 24, "-n", "16");
    CHECK(pty_wait_prompt(&session));
    CHECK(ask("/seed 11", "Seed 11."));
    CHECK(ask("/seed 22", "Seed 22."));
    pty_send(&session, "\033[A\033[A");
    CHECK_SOON(!strcmp(line(), "> /seed 11"));
    pty_send(&session, "\033[B");
    CHECK_SOON(!strcmp(line(), "> /seed 22"));
    pty_send(&session, "3");
    CHECK(ask("", "Seed 223."));
    pty_send(&session, "\022d 11"); /* Ctrl-R: what is looked for has a row of its own */
    CHECK(pty_wait_text(&session, "bck:d 11"));
    pty_send(&session, "\033");
    CHECK_SOON(!strcmp(line(), "> /seed 11") && !*below());
    CHECK(ask("", "Seed 11."));
    CHECK(leaves());
    pty_close(&session);

    START(80, 24, "-n", "16"); /* it is there the next time too */
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "\033[A\033[A");
    CHECK_SOON(!strcmp(line(), "> /seed 223"));
    pty_send(&session, "\003");
    CHECK(pty_wait_prompt(&session) && leaves());
    struct stat info;
    char path[DG_TEST_PATH + 64];
    snprintf(path, sizeof path, "%s/dgemma/history", state_folder);
    CHECK(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    return true;
}

static bool no_history(void)
{
    char path[DG_TEST_PATH + 64];
    snprintf(path, sizeof path, "%s/dgemma/history", state_folder);
    unlink(path);
    START(80, 24, "--no-history");
    CHECK(pty_wait_prompt(&session) && ask("/seed 5", "Seed 5.") && leaves());
    CHECK(!dg_file_exists(path));
    return true;
}

static bool answer_stays_as_text(void)
{
    dg_buf want;
    CHECK(expected_answer("-n 48 --seed 3 --hide-thinking", "Hello there", &want));
    START(80, 24, "-n", "48", "--seed", "3", "--hide-thinking");
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "Hello there\r");
    CHECK(pty_wait_frames(&session, 5));
    CHECK(session.screen.seen_dim && session.screen.seen_color);
    CHECK(pty_wait_text(&session, "[cut at 48 tokens") && pty_wait_prompt(&session));
    bool shown = transcript_has(want.data);
    dg_buf_clear(&want);
    CHECK(shown);
    CHECK(!transcript_has("settled")); /* nothing of the frame is left */
    return leaves();
}

/* The text is the same whatever the width; it is joined again where the terminal has wrapped it. */
static bool widths(void)
{
    static const int columns[] = {300, 20, 13, 7};
    dg_buf want;
    CHECK(expected_answer("-n 100 --seed 3 --hide-thinking", "Hello there", &want));
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        START(columns[i], 12, "-n", "100", "--seed", "3", "--hide-thinking", "-p", "Hello there");
        CHECK(pty_wait_frames(&session, 5) && pty_wait_prompt(&session));
        /* in 7 columns some words have no room anywhere */
        CHECK(pty_shows(&session, want.data, columns[i] > 7));
        CHECK(!transcript_has("ttled") && session.screen.mistake[0] == '\0');
        CHECK(leaves());
        pty_close(&session);
    }
    dg_buf_clear(&want);
    START(2, 1, "-n", "40", "-p", "x"); /* nobody has this; it must not break */
    CHECK(pty_wait_text(&session, "--max-tokens]"));
    CHECK_SOON(!(pty_modes(&session).c_lflag & ICANON)); /* the next line is read */
    return leaves();
}

static bool resize_while_drawing(void)
{
    static const int sizes[][2] = {{30, 24}, {120, 40}, {20, 5}, {5, 3}, {80, 24}};
    START(80, 24, LONG, "--seed", "3");
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "Hello there\r");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CHECK(pty_wait_frames(&session, 10));
        pty_resize(&session, sizes[i][0], sizes[i][1]);
    }
    CHECK(pty_wait_frames(&session, 10));
    pty_send(&session, "\003");
    CHECK(pty_wait_text(&session, "[stopped]") && pty_wait_prompt(&session));
    CHECK(ask("/seed 7", "Seed 7."));
    return leaves();
}

/* Terminals that wrap rows which have become too long: nothing of a frame is left behind. */
static bool resize_with_rows_that_wrap(void)
{
    static const int columns[] = {50, 33, 90, 40, 25, 80};
    START(80, 30, LONG, "--seed", "3", "--pace", "500");
    CHECK(pty_wait_prompt(&session));
    session.screen.reflows = true;
    pty_send(&session, "Hello there\r");
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        CHECK(pty_wait_frames(&session, 2));
        pty_resize(&session, columns[i], 30);
    }
    CHECK(pty_wait_frames(&session, 2));
    pty_send(&session, "\003");
    CHECK(pty_wait_text(&session, "[stopped]") && pty_wait_prompt(&session));
    CHECK(!transcript_has("settled") && transcript_has("> Hello there"));
    return leaves();
}

/* The whole answer is there once more after the terminal has become narrow and wide again. */
static bool resize_keeps_the_text(void)
{
    dg_buf want;
    CHECK(expected_answer("-n 48 --seed 3 --hide-thinking", "Hello there", &want));
    START(80, 24, "-n", "48", "--seed", "3", "--hide-thinking", "--pace", "300");
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "Hello there\r");
    CHECK(pty_wait_frames(&session, 2)); /* in the first block: nothing is finished yet */
    pty_resize(&session, 40, 20);
    CHECK(pty_wait_text(&session, "[cut at 48") && pty_wait_prompt(&session));
    bool shown = transcript_has(want.data);
    dg_buf_clear(&want);
    CHECK(shown && !transcript_has("settled"));
    return leaves();
}

static bool resize_while_typing(void)
{
    START(40, 10, "-n", "16");
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "/system abc");
    CHECK_SOON(!strcmp(line(), "> /system abc"));
    pty_resize(&session, 60, 12);
    pty_settle(&session);
    CHECK_SOON(!strcmp(line(), "> /system abc"));
    pty_send(&session, "def");
    CHECK(ask("", "System message: abcdef"));
    return leaves();
}

static bool interrupt_answer(void)
{
    START(80, 24, LONG);
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "Hello\r");
    CHECK(pty_wait_frames(&session, 20));
    CHECK(!(pty_modes(&session).c_lflag & ECHO) && !session.screen.cursor_visible);
    pty_send(&session, "\003");
    CHECK(pty_wait_text(&session, "[stopped]") && pty_wait_prompt(&session));
    CHECK(session.screen.cursor_visible);
    CHECK(ask("/stats", "ended by cancelled"));
    pty_send(&session, "once more\r"); /* the program goes on */
    CHECK(pty_wait_frames(&session, 5));
    pty_send(&session, "\003");
    CHECK(pty_wait_prompt(&session));
    return leaves();
}

static bool interrupt_line(void)
{
    START(80, 24, "-n", "16");
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "not this");
    CHECK_SOON(!strcmp(line(), "> not this"));
    pty_send(&session, "\003");
    CHECK(pty_wait_prompt(&session));
    CHECK(ask("/seed 9", "Seed 9.") && !transcript_has("/exit leaves"));
    pty_send(&session, "\003");
    CHECK(pty_wait_text(&session, "Ctrl-D or /exit leaves.") && pty_wait_prompt(&session));
    return leaves();
}

/* What to try is the first thing that is said. */
static bool first_line(void)
{
    START(30, 24, "-n", "16");
    CHECK(pty_wait_prompt(&session));
    CHECK(!strncmp(vt_row_text(&session.screen, 0), "Try: What is the capital of", 27));
    CHECK(transcript_has("/help lists commands, Ctrl-C stops an answer, Ctrl-D leaves."));
    return leaves();
}

/* Line ends that are pasted, or stand between quotes, belong to the message. */
static bool several_lines(void)
{
    char words[DG_TEST_PATH + 64];
    snprintf(words, sizeof words, "/save ! %s", file_path);
    START(60, 24, "-n", "16");
    CHECK(pty_wait_prompt(&session) && session.screen.pasting);
    pty_send(&session, "See: \033[200~one\rtwo\rthree\tfour\007\n/exit\033[201~ five");
    CHECK_SOON(!strcmp(line(), "/exit five"));
    CHECK(!strcmp(vt_row_text(&session.screen, session.screen.y - 2), "two"));
    CHECK(ask("", NULL) && ask(words, "saved."));
    CHECK(saved_has("\"See: one\\ntwo\\nthree\\tfour\\n/exit five\""));
    CHECK(ask("/clear", "anew"));
    pty_send(&session, "\"\"\"/four\r");
    CHECK_SOON(!strcmp(line(), "|"));
    pty_send(&session, "five \\\r");
    CHECK(ask("six\"\"\"", NULL) && ask(words, "saved."));
    CHECK(saved_has("\"/four\\nfive \\\\\\nsix\""));
    CHECK(ask("/clear", "anew") && ask("\"\"\"seven\"\"\"", NULL) && ask(words, "saved."));
    CHECK(saved_has("\"seven\""));
    CHECK(leaves());
    CHECK_SOON(!session.screen.pasting);
    return true;
}

/* The line below the canvas has room in 30 columns. */
static bool narrow_status(void)
{
    bool seen = false;
    START(30, 24, LONG);
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "Hello\r");
    for (int i = 0; i < 200 && !seen; i++) {
        CHECK(pty_wait_frames(&session, 1));
        const char *end = strstr(line(), " settled");
        seen = end && !strcmp(end, " settled") && !strncmp(line(), "step ", 5);
    }
    CHECK(seen);
    pty_send(&session, "\003");
    CHECK(pty_wait_text(&session, "[stopped]") && pty_wait_prompt(&session));
    return leaves();
}

static bool typed_ahead(void)
{
    START(80, 24, "-n", "48", "-p", "Hello");
    CHECK(pty_wait_frames(&session, 3));
    pty_send(&session, "/seed 4\r"); /* not echoed into the frame, and not lost */
    CHECK(pty_wait_text(&session, "Seed 4.") && pty_wait_prompt(&session));
    return leaves();
}

/* ends_by NUMBER: while an answer is drawn, and while a line is typed */
static bool ends_by(int number)
{
    for (int drawing = 0; drawing < 2; drawing++) {
        START(80, 24, LONG);
        CHECK(pty_wait_prompt(&session));
        pty_send(&session, drawing ? "Hello\r" : "Hello");
        if (drawing)
            CHECK(pty_wait_frames(&session, 5));
        else
            CHECK_SOON(!strcmp(line(), "> Hello"));
        kill(session.pid, number);
        CHECK(pty_wait_end(&session));
        CHECK(pty_modes_are_back(&session));
        CHECK_SOON(session.screen.cursor_visible && session.screen.autowrap);
        /* a sanitizer that reports a crash exits by itself */
        CHECK(WIFSIGNALED(session.status) ? WTERMSIG(session.status) == number
                                          : number == SIGSEGV || number == SIGABRT);
        if (!drawing)
            pty_close(&session);
    }
    return true;
}

static bool ends_by_term(void)
{
    return ends_by(SIGTERM);
}

static bool ends_by_hangup(void)
{
    return ends_by(SIGHUP);
}

static bool ends_by_crash(void)
{
    return ends_by(SIGSEGV);
}

static bool ends_by_abort(void)
{
    return ends_by(SIGABRT);
}

static bool ends_by_other_signals(void)
{
    static const int others[] = {SIGQUIT, SIGPIPE, SIGUSR1, SIGALRM, SIGXCPU};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (i)
            pty_close(&session);
        CHECK(ends_by(others[i]));
    }
    return true;
}

/* Sent by the terminal itself, which is another way for the kernel. */
static bool ends_by_quit_key(void)
{
    START(80, 24, LONG);
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "Hello\r");
    CHECK(pty_wait_frames(&session, 5));
    pty_send(&session, "\034"); /* Ctrl-\ */
    CHECK(pty_wait_end(&session) && pty_modes_are_back(&session));
    CHECK_SOON(session.screen.cursor_visible && session.screen.autowrap);
    CHECK(WIFSIGNALED(session.status) && WTERMSIG(session.status) == SIGQUIT);
    return true;
}

static bool suspend_and_go_on(void)
{
    START(80, 24, LONG);
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "/seed 1");
    CHECK_SOON(!strcmp(line(), "> /seed 1"));
    pty_send(&session, "\032"); /* Ctrl-Z */
    CHECK(pty_wait_stop(&session) && pty_modes_are_back(&session));
    kill(session.pid, SIGCONT);
    pty_send(&session, "2");
    CHECK(ask("", "Seed 12."));
    pty_send(&session, "Hello\r");
    CHECK(pty_wait_frames(&session, 5));
    pty_send(&session, "\032");
    CHECK(pty_wait_stop(&session) && pty_modes_are_back(&session));
    CHECK_SOON(session.screen.cursor_visible);
    kill(session.pid, SIGCONT);
    CHECK(pty_wait_frames(&session, 5));
    pty_send(&session, "\003");
    CHECK(pty_wait_text(&session, "[stopped]") && pty_wait_prompt(&session));
    return leaves();
}

static bool commands(void)
{
    char words[DG_TEST_PATH + 64], wanted[DG_TEST_PATH + 64];
    unlink(file_path);
    start_with(100, 40, "ASAN_OPTIONS=detect_leaks=1",
               (char *[]){"--pace", "2", "-n", "16", "--system", "Be brief.", NULL});
    CHECK(pty_wait_prompt(&session));
    CHECK(ask("/help", "/save    [!] FILE"));
    CHECK(ask("/stats", "no answer yet"));
    CHECK(ask("/retry", "nothing to ask again"));
    CHECK(ask("/rewrite \"a\"", "There is no answer yet."));
    CHECK(ask("/dance", "no command /dance"));
    CHECK(ask("/think", "Thinking is off, thoughts are shown."));
    CHECK(ask("/think on", "Thinking is on"));
    CHECK(ask("/think hide", "thoughts are hidden"));
    CHECK(ask("/think maybe", "not \"maybe\""));
    CHECK(ask("/think off", "Thinking is off"));
    CHECK(ask("/seed x", "takes a number"));
    CHECK(ask("/steps 0", "from 1"));
    CHECK(ask("/steps 3", "At most 3 steps"));
    CHECK(ask("Hello", NULL));
    CHECK(ask("/stats", "in 1 block and 3 steps"));
    CHECK(ask("/retry", "Again, with seed 1."));
    CHECK(ask("/rewrite", "words of the last answer in quotes"));
    CHECK(ask("/rewrite \"no such words\"", "does not say \"no such words\""));
    CHECK(ask("/image", "needs a file"));
    CHECK(ask("/image README.md", "not a PNG"));
    CHECK(ask("/image tests/fixtures/golden/vision/image.png", "1 picture for the next message"));
    CHECK(ask("What is it?", NULL));
    CHECK(ask("//not a command\\\rsecond line", NULL));
    snprintf(words, sizeof words, "/save %s", file_path);
    snprintf(wanted, sizeof wanted, "%s: 7 messages saved.", file_path);
    CHECK(ask(words, wanted));
    CHECK(ask("/clear", "starts anew"));
    snprintf(words, sizeof words, "/load %s", file_path);
    snprintf(wanted, sizeof wanted, "%s: 7 messages loaded.", file_path);
    CHECK(ask(words, wanted));
    CHECK(ask("Go on", NULL));
    CHECK(ask("/load README.md", "README.md:1:"));
    CHECK(ask("/load nowhere.json", "No such file"));
    CHECK(ask("/load /dev/zero", "not a regular file"));
    CHECK(ask("/save /nowhere/x.json", "cannot be written"));
    CHECK(ask("/save README.md", "README.md is there already; /save ! README.md replaces it."));
    CHECK(ask("/save", "Which file?") && ask("/save !", "Which file?"));
    snprintf(words, sizeof words, "/save %s", file_path); /* its own file, once more */
    snprintf(wanted, sizeof wanted, "%s: 9 messages saved.", file_path);
    CHECK(ask(words, wanted));
    CHECK(ask("/load tests/data/chat.json", "No such file"));
    CHECK(ask("/system", "no system message now"));
    pty_send(&session, "/exit\r");
    CHECK(pty_wait_end(&session) && WIFEXITED(session.status) && !WEXITSTATUS(session.status));
    CHECK(pty_modes_are_back(&session));
    dg_buf saved;
    dg_buf_init(&saved, 1 << 20);
    CHECK(dg_file_read(&saved, file_path, NULL) == DGEMMA_OK);
    bool right = strstr(saved.data, "data:image/png;base64,") && strstr(saved.data, "Be brief.") &&
                 strstr(saved.data, "\"/not a command\\nsecond line\"");
    dg_buf_clear(&saved);
    CHECK(right);
    return true;
}

/* What is typed arrives as it was typed, and the line on the screen agrees. */
static bool scripts(const char *locale)
{
    static const struct {
        const char *text;
        int cells;
    } cases[] = {
        {"日本語のテスト", 14}, /* two cells each */
        {"שלום עולם", 9},       /* right to left, in the order it is written */
        {"مرحبا", 5},
        {"e\u0301a\u0308 n\u0303", 4}, /* marks that join what is before them */
        {"Grüße, žluťoučký", 16},
        {"\U0001F600\U0001F680", 4},
    };
    char words[DG_TEST_PATH + 64];
    unlink(file_path);
    start_with(60, 20, locale, (char *[]){"--pace", "2", "-n", "16", NULL});
    CHECK(pty_wait_prompt(&session));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pty_send(&session, cases[i].text);
        CHECK_SOON(session.screen.x == 2 + cases[i].cells);
        CHECK(ask("", NULL));
        snprintf(words, sizeof words, "/save %s", file_path);
        CHECK(ask(words, "saved."));
        CHECK(saved_has(cases[i].text));
    }
    CHECK(transcript_has("> 日本語のテスト") && transcript_has("> שלום עולם"));
    return leaves();
}

static bool scripts_in_utf8(void)
{
    return scripts("LC_ALL=C.UTF-8");
}

static bool scripts_in_the_c_locale(void)
{
    return scripts("LC_ALL=C");
}

/* A frame of wide, joining and right-to-left text that the model is made to see; the loaded file
 * also holds escapes, in a place whose text is shown. */
static bool hostile_file(void)
{
    FILE *f = fopen(file_path, "w");
    CHECK(f != NULL);
    fputs("[{\"role\": \"user\", \"content\": \"\\u001b[2J\\u009b31m\\u202e\"}, 5]", f);
    fclose(f);
    char words[DG_TEST_PATH + 64];
    snprintf(words, sizeof words, "/load %s", file_path);
    START(80, 24, "-n", "16");
    CHECK(pty_wait_prompt(&session));
    CHECK(ask(words, "message 2 has no role"));
    pty_send(&session, "/\026\033[31mred\r"); /* Ctrl-V: the escape itself is typed */
    CHECK(pty_wait_text(&session, "no command /\xE2\x90\x9B[31mred"));
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "/system \026\033]0;title\026\007\r");
    CHECK(pty_wait_text(&session, "System message: \xE2\x90\x9B]0;title\xE2\x90\x87"));
    CHECK(pty_wait_prompt(&session));
    return leaves();
}

static bool without_color(void)
{
    start_with(80, 24, "NO_COLOR=1", (char *[]){"--pace", "2", "-n", "48", "-p", "Hello", NULL});
    CHECK(pty_wait_frames(&session, 5) && pty_wait_prompt(&session));
    CHECK(session.screen.seen_dot); /* unsettled places are dots */
    CHECK(!session.screen.seen_color && !session.screen.seen_dim);
    CHECK(!transcript_has("\u00B7\u00B7"));
    return leaves();
}

static bool color_options(void)
{
    START(80, 24, "-n", "48", "--color", "never", "-p", "Hello");
    CHECK(pty_wait_frames(&session, 5) && pty_wait_prompt(&session));
    CHECK(!session.screen.seen_color && !session.screen.seen_dim);
    CHECK(leaves());
    pty_close(&session);
    start_with(80, 24, "NO_COLOR=1",
               (char *[]){"--pace", "2", "-n", "48", "--color", "always", "-p", "Hello", NULL});
    CHECK(pty_wait_frames(&session, 5) && pty_wait_prompt(&session));
    CHECK(session.screen.seen_color);
    return leaves();
}

static bool no_live(void)
{
    dg_buf want;
    CHECK(expected_answer("-n 48 --seed 3 --hide-thinking", "Hello there", &want));
    START(80, 24, "-n", "48", "--seed", "3", "--hide-thinking", "--no-live", "-p", "Hello there");
    CHECK(pty_wait_prompt(&session));
    bool shown = transcript_has(want.data);
    dg_buf_clear(&want);
    CHECK(shown && session.screen.n_frame == 0);
    return leaves();
}

/* A terminal that can do nothing gets nothing but text. */
static bool dumb_terminal(void)
{
    start_with(80, 24, "TERM=dumb", (char *[]){"-n", "48", "-p", "Hello there", NULL});
    CHECK(pty_wait_text(&session, "[cut at 48") && pty_wait_prompt(&session));
    CHECK(session.screen.n_frame == 0 && !session.screen.seen_dim);
    pty_send(&session, "\004");
    return pty_wait_end(&session) && pty_modes_are_back(&session);
}

/* What a newcomer types first. Ctrl-C reaches make too, which waits for the program all the same.
 */
static bool make_run(void)
{
    const char *env[] = {"TERM=xterm",   "NO_COLOR=",        "LC_ALL=C.UTF-8",
                         state_variable, "EDITRC=/dev/null", NULL};
    char *argv[] = {"/bin/sh", "-c",
                    "exec make run RUN_MODEL=" MODEL
                    " RUN_ARGS='-n 4000 --steps 1000 --t-max 1.6 --t-min 0.3'",
                    NULL};
    pty_start(&session, 80, 24, env, argv);
    CHECK(pty_wait_prompt(&session));
    pty_send(&session, "Hello\r");
    CHECK(pty_wait_frames(&session, 5));
    pty_send(&session, "\003");
    CHECK(pty_wait_text(&session, "[stopped]") && pty_wait_prompt(&session));
    CHECK(ask("/seed 6", "Seed 6."));
    pty_send(&session, "\004");
    return pty_wait_end(&session) && pty_modes_are_back(&session);
}

/* Starts a program that finds Ctrl-C waiting for it: what is pending outlives exec. */
static int exec_interrupted(char **argv)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGINT);
    execv(argv[0], argv);
    return EXIT_FAILURE;
}

#define INTERRUPTED "--interrupted"

/* The server looks for Ctrl-C while it loads, also where it shows how far it is. */
static bool interrupted_while_loading(void)
{
    const char *env[] = {"TERM=xterm", NULL};
    char *argv[] = {
        "/proc/self/exe", INTERRUPTED, (char *)program, "serve", "-m", MODEL, "--port", "0", NULL};
    pty_start(&session, 80, 24, env, argv);
    CHECK(pty_wait_end(&session));
    CHECK_SOON(transcript_has("loading was given up"));
    CHECK(!transcript_has("listening"));
    CHECK(WIFEXITED(session.status) && WEXITSTATUS(session.status) == 1);
    return true;
}

/* ---- all of them ---- */

static const struct {
    const char *name;
    bool (*run)(void);
} cases[] = {
    {"editing_keys", editing_keys},
    {"long_line", long_line},
    {"history_and_search", history_and_search},
    {"no_history", no_history},
    {"answer_stays_as_text", answer_stays_as_text},
    {"widths", widths},
    {"resize_while_drawing", resize_while_drawing},
    {"resize_with_rows_that_wrap", resize_with_rows_that_wrap},
    {"resize_keeps_the_text", resize_keeps_the_text},
    {"resize_while_typing", resize_while_typing},
    {"interrupt_answer", interrupt_answer},
    {"interrupt_line", interrupt_line},
    {"first_line", first_line},
    {"several_lines", several_lines},
    {"narrow_status", narrow_status},
    {"typed_ahead", typed_ahead},
    {"ends_by_term", ends_by_term},
    {"ends_by_hangup", ends_by_hangup},
    {"ends_by_crash", ends_by_crash},
    {"ends_by_abort", ends_by_abort},
    {"ends_by_other_signals", ends_by_other_signals},
    {"ends_by_quit_key", ends_by_quit_key},
    {"suspend_and_go_on", suspend_and_go_on},
    {"commands", commands},
    {"scripts_in_utf8", scripts_in_utf8},
    {"scripts_in_the_c_locale", scripts_in_the_c_locale},
    {"hostile_file", hostile_file},
    {"without_color", without_color},
    {"color_options", color_options},
    {"no_live", no_live},
    {"dumb_terminal", dumb_terminal},
    {"make_run", make_run},
    {"interrupted_while_loading", interrupted_while_loading},
};

/* Whatever a case looks at, the screen must have understood everything it was sent. */
static bool run_case(size_t i)
{
    bool ok = cases[i].run();
    if (session.screen.mistake[0]) {
        printf("the terminal was sent something strange: %s\n", session.screen.mistake);
        ok = false;
    }
    if (!ok) {
        printf("FAILED: %s\n", cases[i].name);
        pty_dump(&session);
    }
    pty_close(&session);
    return ok;
}

int main(int argc, char **argv)
{
    int n_passed = 0, n_failed = 0;
    if (argc > 2 && !strcmp(argv[1], INTERRUPTED))
        return exec_interrupted(argv + 2);
    program = getenv("DGEMMA");
    if (!program) {
        printf("DGEMMA is not set\n0 passed, 1 failed, 0 skipped\n");
        return EXIT_FAILURE;
    }
    char temp[DG_TEST_PATH];
    if (!dg_test_temp_make(temp)) {
        printf("there is no folder for temporary files\n0 passed, 1 failed, 0 skipped\n");
        return EXIT_FAILURE;
    }
    snprintf(state_folder, sizeof state_folder, "%s/a/state", temp);
    snprintf(state_variable, sizeof state_variable, "XDG_STATE_HOME=%s", state_folder);
    snprintf(file_path, sizeof file_path, "%s/chat.json", temp);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (argc < 2 || !strcmp(argv[1], cases[i].name))
            *(run_case(i) ? &n_passed : &n_failed) += 1;
    dg_test_temp_remove(temp);
    printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed || !n_passed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* What can be said to `dgemma chat` beside messages: /help lists it. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "cells.h"
#include "chat.h"
#include "terminal.h"

/* The line with whole words at the edge of the screen. */
static bool wrap(const char *line, dg_buf *out)
{
    cli_canvas_view view;
    int columns, rows;
    cli_terminal_size(&columns, &rows);
    cli_view_init(&view, columns, rows, false);
    return cli_view_text(&view, line, strlen(line), CLI_SETTLED, out) && out->data;
}

__attribute__((format(printf, 2, 0))) static void say(const cli_chat *c, const char *fmt,
                                                      va_list args)
{
    char line[4096];
    vsnprintf(line, sizeof line, fmt, args);
    FILE *out = c->interactive ? stdout : stderr;
    dg_buf rows;
    dg_buf_init(&rows, 1 << 16);
    if (c->interactive && !c->draw.plain && wrap(line, &rows))
        fwrite(rows.data, 1, rows.len, out);
    else
        cli_safe_write(out, line, strlen(line));
    fputc('\n', out);
    fflush(out);
    dg_buf_clear(&rows);
}

void cli_chat_say(const cli_chat *c, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(c, fmt, args);
    va_end(args);
}

void cli_chat_fail(cli_chat *c, const char *fmt, ...)
{
    va_list args;
    c->failed = true;
    va_start(args, fmt);
    say(c, fmt, args);
    va_end(args);
}

static void say_error(cli_chat *c, const dgemma_error *err)
{
    cli_chat_fail(c, "dgemma: %s", err->msg);
}

/* A path as typed: ~/ is the home folder, and "-" is a file of that name, not standard input. For
 * the caller to free. */
static char *typed_path(cli_chat *c, const char *arg)
{
    const char *home = getenv("HOME");
    char *path = arg[0] == '~' && arg[1] == '/' && home ? dg_path_join(home, arg + 2)
                 : !strcmp(arg, "-")                    ? dg_strdup("./-")
                                                        : dg_strdup(arg);
    if (!path)
        cli_chat_fail(c, "dgemma: out of memory");
    return path;
}

/* ---- the commands ---- */

static void do_help(cli_chat *c, const char *arg);

static void do_clear(cli_chat *c, const char *arg)
{
    (void)arg;
    dgemma_error err;
    if (cli_log_forget(&c->log, &err))
        say_error(c, &err);
    else
        cli_chat_say(c, "The conversation starts anew.");
}

static void do_system(cli_chat *c, const char *arg)
{
    dgemma_error err;
    if (cli_log_set_system(&c->log, arg, &err))
        say_error(c, &err);
    else
        cli_chat_say(c, *arg ? "System message: %s" : "There is no system message now.%s", arg);
}

static void do_think(cli_chat *c, const char *arg)
{
    if (!strcmp(arg, "on") || !strcmp(arg, "off"))
        c->args.think = arg[1] == 'n';
    else if (!strcmp(arg, "hide") || !strcmp(arg, "show"))
        c->draw.hide_thinking = arg[0] == 'h';
    else if (*arg) {
        cli_chat_fail(c, "/think takes on, off, hide or show, not \"%s\".", arg);
        return;
    }
    cli_chat_say(c, "Thinking is %s, thoughts are %s.", c->args.think ? "on" : "off",
                 c->draw.hide_thinking ? "hidden" : "shown");
}

static void do_image(cli_chat *c, const char *arg)
{
    dgemma_error err;
    if (!*arg || !c->info.has_vision || cli_log_pictures(&c->log) >= CLI_MAX_MEDIA) {
        cli_chat_fail(c, !*arg                ? "/image needs a file."
                         : c->info.has_vision ? "That is one picture too many for a message."
                                              : "This model cannot look at pictures.");
        return;
    }
    char *path = typed_path(c, arg);
    if (path && cli_log_add_picture(&c->log, path, &err))
        say_error(c, &err);
    else if (path)
        cli_chat_say(c, "%zu picture%s for the next message.", cli_log_pictures(&c->log),
                     cli_plural((long)cli_log_pictures(&c->log)));
    dg_free(path);
}

static void do_seed(cli_chat *c, const char *arg)
{
    if (*arg && !cli_set_seed(&c->args.seed, arg))
        cli_chat_fail(c, "/seed takes a number, not \"%s\".", arg);
    else
        cli_chat_say(c, "Seed %llu.", (unsigned long long)c->args.seed);
}

static void do_steps(cli_chat *c, const char *arg)
{
    int steps = c->args.steps;
    if (*arg && (!cli_set_int(&steps, arg) || !steps)) {
        cli_chat_fail(c, "/steps takes a number from 1, not \"%s\".", arg);
        return;
    }
    c->args.steps = steps;
    dgemma_request_options o = dgemma_request_defaults(c->engine);
    cli_chat_say(c, "At most %d steps for a block.", steps < 0 ? o.max_denoise_steps : steps);
}

static void do_stats(cli_chat *c, const char *arg)
{
    (void)arg;
    FILE *out = c->interactive ? stdout : stderr;
    if (!c->n_answer) {
        cli_chat_say(c, "There was no answer yet.");
        return;
    }
    cli_print_stats(out, &c->last);
    cli_chat_say(c,
                 "%d answer%s so far, %ld token%s in %.1f s; %zu messages; %.1f MB of keys and "
                 "values at the end",
                 c->n_answer, cli_plural(c->n_answer), c->n_output, cli_plural(c->n_output),
                 c->seconds, cli_log_count(&c->log), (double)c->last.kv_bytes / 1e6);
}

typedef dgemma_status file_fn(cli_chat_log *log, const char *path, dgemma_error *err);

static dgemma_status save(cli_chat_log *log, const char *path, dgemma_error *err)
{
    return cli_log_save(log, path, err);
}

static bool with_file(cli_chat *c, const char *arg, file_fn *fn, const char *done)
{
    dgemma_error err;
    if (!*arg) {
        cli_chat_fail(c, "Which file?");
        return false;
    }
    char *path = typed_path(c, arg);
    bool ok = path && !fn(&c->log, path, &err);
    if (ok)
        cli_chat_say(c, "%s: %zu messages %s.", path, cli_log_count(&c->log), done);
    else if (path)
        say_error(c, &err);
    dg_free(path);
    return ok;
}

/* What is there and did not come from this conversation stays, unless the name is given with a "!".
 */
static void do_save(cli_chat *c, const char *arg)
{
    bool replace = arg[0] == '!';
    if (replace)
        arg += 1 + strspn(arg + 1, " \t");
    char *path = *arg ? typed_path(c, arg) : NULL;
    if (path && !replace && dg_file_exists(path) && !(c->saved && !strcmp(c->saved, path))) {
        cli_chat_fail(c, "%s is there already; /save ! %s replaces it.", path, arg);
        dg_free(path);
        return;
    }
    if (with_file(c, arg, save, "saved")) {
        dg_free(c->saved);
        c->saved = path;
    } else
        dg_free(path);
}

static void do_load(cli_chat *c, const char *arg)
{
    with_file(c, arg, cli_log_load, "loaded");
}

static void do_retry(cli_chat *c, const char *arg)
{
    (void)arg;
    c->ask_again = cli_log_back_to_user(&c->log);
    if (c->ask_again)
        cli_chat_say(c, "Again, with seed %llu.", (unsigned long long)++c->args.seed);
    else
        cli_chat_fail(c, "There is nothing to ask again.");
}

/* "PASSAGE" in quotes, then how. */
static void do_rewrite(cli_chat *c, const char *arg)
{
    const char *said = cli_log_last_answer(&c->log), *end = *arg == '"' ? strrchr(arg, '"') : NULL;
    if (!said || !end || end < arg + 2) {
        cli_chat_fail(c, said ? "/rewrite takes words of the last answer in quotes, and behind "
                                "them how: /rewrite \"is large\" shorter"
                              : "There is no answer yet.");
        return;
    }
    c->passage = dg_strdup(arg + 1);
    c->how = dg_strdup(end + 1 + strspn(end + 1, " \t"));
    if (c->passage)
        c->passage[end - arg - 1] = '\0';
    bool found = c->passage && c->how && strstr(said, c->passage);
    if (found) {
        cli_chat_say(c, "Anew, with seed %llu.", (unsigned long long)++c->args.seed);
        return;
    }
    if (!c->passage || !c->how)
        cli_chat_fail(c, "dgemma: out of memory");
    else
        cli_chat_fail(c, "The last answer does not say \"%s\".", c->passage);
    dg_free(c->passage);
    dg_free(c->how);
    c->passage = c->how = NULL;
}

static void do_exit(cli_chat *c, const char *arg)
{
    (void)arg;
    c->leave = true;
}

static const struct command {
    const char *name, *arg, *help;
    void (*run)(cli_chat *c, const char *arg);
} commands[] = {
    {"help", "", "this list", do_help},
    {"clear", "", "forget the conversation, not the system message", do_clear},
    {"system", "TEXT", "instructions in front of the conversation; none: take them away",
     do_system},
    {"think", "[on|off|hide|show]", "think before answering; hide or show the thoughts", do_think},
    {"image", "PATH", "a picture for the next message", do_image},
    {"seed", "N", "the same seed gives the same answer", do_seed},
    {"steps", "N", "most denoising steps for a block", do_steps},
    {"retry", "", "the last message again, with the next seed", do_retry},
    {"rewrite", "\"WORDS\" [HOW]", "words of the last answer anew, all else stays", do_rewrite},
    {"stats", "", "how long the last answer took, and all of them", do_stats},
    {"save", "[!] FILE", "the conversation as JSON, in OpenAI's form; ! replaces a file", do_save},
    {"load", "FILE", "go on with a conversation from such a file", do_load},
    {"exit", "", "leave; Ctrl-D does too", do_exit},
};

static void do_help(cli_chat *c, const char *arg)
{
    (void)arg;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        cli_chat_say(c, "  /%-7s %-19s %s", commands[i].name, commands[i].arg, commands[i].help);
    cli_chat_say(c,
                 "A line that ends in a backslash goes on in the next one, and so does all between "
                 "\"\"\" and \"\"\"; a message that starts with a slash gets two.");
    cli_chat_say(c, "Ctrl-C stops the answer, Ctrl-R searches what was typed before.");
}

void cli_chat_command(cli_chat *c, const char *line)
{
    const char *name = line + 1;
    size_t len = strcspn(name, " \t\n");
    char *arg = dg_strdup(name + len + strspn(name + len, " \t\n"));
    if (!arg) {
        cli_chat_fail(c, "dgemma: out of memory");
        return;
    }
    size_t n = strlen(arg);
    while (n && strchr(" \t\n", arg[n - 1]))
        arg[--n] = '\0';
    const struct command *found = NULL;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strlen(commands[i].name) == len && !memcmp(commands[i].name, name, len))
            found = &commands[i];
    if (found)
        found->run(c, arg);
    else
        cli_chat_fail(c, "There is no command /%.*s; /help lists them.", (int)(len < 40 ? len : 40),
                      name);
    dg_free(arg);
}

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "cells.h"
#include "cli.h"
#include "lora_args.h"

bool cli_set_string(void *target, const char *text)
{
    *(const char **)target = text;
    return true;
}

bool cli_set_switch(void *target, const char *text)
{
    (void)text;
    *(bool *)target = true;
    return true;
}

bool cli_set_int(void *target, const char *text)
{
    char *end;
    errno = 0;
    long v = strtol(text, &end, 10);
    if (end == text || *end || errno || v < 0 || v > INT32_MAX)
        return false;
    *(int *)target = (int)v;
    return true;
}

bool cli_set_count(void *target, const char *text)
{
    int n;
    if (!cli_set_int(&n, text) || n == 0)
        return false;
    *(int *)target = n;
    return true;
}

bool cli_read_decimal(const char *text, float *value)
{
    char *end;
    if (!*text || strspn(text, "+-.0123456789eE") != strlen(text))
        return false;
    float v = strtof(text, &end);
    if (*end)
        return false;
    *value = v;
    return true;
}

bool cli_set_float(void *target, const char *text)
{
    float v;
    if (!cli_read_decimal(text, &v) || !isfinite(v))
        return false;
    *(float *)target = v;
    return true;
}

bool cli_set_seed(void *target, const char *text)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (end == text || *end || errno || *text == '-')
        return false;
    *(uint64_t *)target = v;
    return true;
}

static const cli_option *find(const cli_option *options, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (options[i].help && strlen(options[i].name) == len &&
            !memcmp(options[i].name, name, len))
            return &options[i];
    return NULL;
}

static const cli_option *find_letter(const cli_option *options, size_t n, char letter)
{
    for (size_t i = 0; i < n; i++)
        if (options[i].help && options[i].letter == letter)
            return &options[i];
    return NULL;
}

/* The option that a word names, and where its value starts in the word (NULL: it is the next word).
 */
static const cli_option *read_option(const cli_option *options, size_t n, const char *word,
                                     const char **value)
{
    *value = NULL;
    if (word[1] != '-') {
        *value = word[2] ? word + 2 : NULL;
        return find_letter(options, n, word[1]);
    }
    const char *equals = strchr(word, '=');
    *value = equals ? equals + 1 : NULL;
    return find(options, n, word + 2, equals ? (size_t)(equals - word - 2) : strlen(word + 2));
}

/* What a setter takes, where the help does not say it: NULL. */
static const char *wanted(const cli_option *o)
{
    return o->set == cli_set_int || o->set == cli_set_seed ? "a whole number from 0 on"
           : o->set == cli_set_count                       ? "a whole number from 1 on"
           : o->set == cli_set_float                       ? "a number"
           : o->set == cli_add_lora ? ((const cli_lora_args *)o->target)->wanted
                                    : NULL;
}

/* Of "-nx" and "--max-tokens=x", what names the option. */
static size_t option_len(const char *word)
{
    return word[1] == '-' ? strcspn(word, "=") : 2;
}

bool cli_parse(const char *command, const cli_option *options, size_t n_option, int argc,
               char **argv, const char **rest, size_t max_rest, size_t *n_rest)
{
    bool words_only = false;
    *n_rest = 0;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value;
        if (words_only || word[0] != '-' || !word[1]) {
            if (*n_rest == max_rest) {
                fprintf(stderr,
                        "dgemma %s: \"%s\" is one word too many; a text of several is put in "
                        "quotes\n",
                        command, word);
                return false;
            }
            rest[(*n_rest)++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            words_only = true;
            continue;
        }
        const cli_option *o = read_option(options, n_option, word, &value);
        if (!o) {
            fprintf(stderr, "dgemma %s: there is no option %s (see dgemma %s --help)\n", command,
                    word, command);
            return false;
        }
        if (!o->value && value) {
            fprintf(stderr, "dgemma %s: --%s takes no value\n", command, o->name);
            return false;
        }
        if (o->value && !value && ++i < argc)
            value = argv[i];
        if (o->value && !value) {
            fprintf(stderr, "dgemma %s: %s needs a value; %s: %s\n", command, word, o->value,
                    o->help);
            return false;
        }
        if (!o->set(o->target, o->value ? value : "")) {
            fprintf(stderr, "dgemma %s: %.*s: \"%s\" does not fit%s%s; %s: %s\n", command,
                    (int)option_len(word), word, value, wanted(o) ? ", wanted " : "",
                    wanted(o) ? wanted(o) : "", o->value, o->help);
            return false;
        }
    }
    return true;
}

/* From the column where the text stands already, no line longer than 100. */
static void print_wrapped(FILE *out, const char *text, size_t left)
{
    enum { WIDTH = 100 };
    while (strlen(text) > WIDTH - left) {
        size_t n = WIDTH - left;
        while (n && text[n] != ' ')
            n--;
        if (!n)
            break;
        fprintf(out, "%.*s\n%*s", (int)n, text, (int)left, "");
        text += n + 1;
    }
    fprintf(out, "%s\n", text);
}

void cli_print_help(const char *usage, const cli_option *options, size_t n_option)
{
    FILE *out = stdout;
    fputs(usage, out);
    for (size_t i = 0; i < n_option; i++) {
        const cli_option *o = &options[i];
        if (!o->help) {
            fprintf(out, "\n%s\n", o->name);
            continue;
        }
        char left[64];
        snprintf(left, sizeof left, "%c%c%s--%s%s%s", o->letter ? '-' : ' ',
                 o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        fprintf(out, "  %-26s ", left);
        print_wrapped(out, o->help, strlen(left) > 26 ? strlen(left) + 3 : 29);
    }
}

void cli_warn_of_model(const dgemma_engine_options *opt, const dgemma_model_info *info)
{
    if (info->foreign_template && !opt->chat_template)
        fputs("dgemma: the model's chat template is not one of DiffusionGemma's; revision a is "
              "used (--chat-template)\n",
              stderr);
    if (info->vision_ignored) {
        fputs("dgemma: goes on without pictures: ", stderr);
        cli_safe_write(stderr, info->vision_ignored, strlen(info->vision_ignored));
        fputc('\n', stderr);
    }
}

/* What the library calls it, what is typed, and whether it counts only where a message begins: it
 * is a word that people use, too. */
static const struct {
    const char *field, *option;
    bool first;
} option_names[] = {
    {"max_denoise_steps", "--steps", false},
    {"t_min", "--t-min", false},
    {"t_max", "--t-max", false},
    {"entropy_bound", "--entropy-bound", false},
    {"stability_threshold", "--stability", false},
    {"confidence_threshold", "--confidence", false},
    {"settled_steps", "--settled", false},
    {"canvas_length", "--canvas", false},
    {"image_tokens", "--image-tokens", false},
    {"max_tokens", "--max-tokens", false},
    {"thinking_budget", "--think-budget", false},
    {"top_k", "--top-k", false},
    {"top_p", "--top-p", false},
    {"min_p", "--min-p", false},
    {"temperature", "--temperature", true},
    {"device", "--device", true},
    {"weights", "--weights", true},
    {"profile", "--profile", true},
    {"chat template", "--chat-template", true},
    {"instruction set", "--cpu-flags", true},
};

static bool in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The option that msg[at …) names, and the length of that name; NULL: none. */
static const char *option_at(const char *msg, size_t at, size_t *len)
{
    if (at && (in_word(msg[at - 1]) || msg[at - 1] == '-'))
        return NULL;
    for (size_t i = 0; i < sizeof option_names / sizeof option_names[0]; i++) {
        *len = strlen(option_names[i].field);
        if (!strncmp(msg + at, option_names[i].field, *len) && !in_word(msg[at + *len]) &&
            (!at || !option_names[i].first))
            return option_names[i].option;
    }
    return NULL;
}

void cli_name_options(dgemma_error *err)
{
    char text[sizeof err->msg];
    size_t n = 0, len;
    if (err->status != DGEMMA_E_ARG)
        return;
    for (size_t at = 0; err->msg[at] && n + 1 < sizeof text;) {
        const char *option = option_at(err->msg, at, &len);
        if (option) {
            int added = snprintf(text + n, sizeof text - n, "%s", option);
            n = n + (size_t)added < sizeof text ? n + (size_t)added : sizeof text - 1;
            at += len;
        } else
            text[n++] = err->msg[at++];
    }
    text[n] = '\0';
    memcpy(err->msg, text, n + 1);
}

void cli_name_file(dgemma_error *err, const char *path)
{
    dg_fail_prefix(err, err->status, strcmp(path, "-") ? path : "standard input");
}

dgemma_status cli_read_text(dg_buf *out, const char *path, dgemma_error *err)
{
    dgemma_status st = dg_file_read(out, path, err);
    if (!st && out->len && memchr(out->data, 0, out->len)) {
        st = dg_fail(err, DGEMMA_E_ARG, "there is a NUL byte in the text");
        cli_name_file(err, path);
    }
    return st;
}

/* Messages repeat what files say, and a terminal obeys what it is sent. */
int cli_fail(const dgemma_error *failed)
{
    dgemma_error named = *failed, *err = &named;
    cli_name_options(err);
    fputs("dgemma: ", stderr);
    cli_safe_write(stderr, err->msg, strlen(err->msg));
    fputc('\n', stderr);
    if (err->status == DGEMMA_E_NOMEM && strstr(err->msg, "on the device"))
        fputs("dgemma: a shorter --context, --weights fp8 or int4, or fewer answers together "
              "(--parallel) take less of it;\n"
              "dgemma: --device cpu takes none, and `dgemma inspect MODEL` says what a model "
              "needs\n",
              stderr);
    return err->status == DGEMMA_E_ARG ? EXIT_USAGE : EXIT_FAILED;
}

void cli_json_string(FILE *out, const char *text, size_t len)
{
    fputc('"', out);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", out);
        else if (c < 0x20 || c == 0x7F)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

double cli_per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

const char *cli_plural(long n)
{
    return n == 1 ? "" : "s";
}

const char *cli_end_name(dgemma_end end)
{
    static const char *const names[] = {"stop",       "length",    "context",
                                        "tool_calls", "cancelled", "failed"};
    return names[end];
}

void cli_print_stats(FILE *out, const dgemma_stats *st)
{
    double seconds = st->prompt_seconds + st->denoise_seconds;
    char known[48] = "";
    if (st->n_prompt_cached)
        snprintf(known, sizeof known, ", %d of them known", st->n_prompt_cached);
    fprintf(out,
            "%d token%s in %d block%s and %d step%s (%d of %d settled early), %.1f tokens/step, "
            "%.1f ms/step, %.1f tokens/s; prompt %d token%s%s; ended by %s\n",
            st->n_output, cli_plural(st->n_output), st->n_blocks, cli_plural(st->n_blocks),
            st->n_steps, cli_plural(st->n_steps), st->n_converged, st->n_blocks,
            cli_per(st->n_output, st->n_steps), 1e3 * cli_per(st->denoise_seconds, st->n_steps),
            cli_per(st->n_output, seconds), st->n_prompt, cli_plural(st->n_prompt), known,
            cli_end_name(st->end));
}

bool cli_parse_ids(const char *command, const char *text, int32_t **out, size_t *n)
{
    size_t cap = strlen(text) / 2 + 1;
    *n = 0;
    *out = dg_array(cap, sizeof **out);
    while (*out) {
        text += strspn(text, " ,\t\r\n[]");
        if (!*text)
            return true;
        char *end;
        errno = 0;
        long v = strtol(text, &end, 10);
        if (end == text || errno || v < 0 || v > INT32_MAX)
            break;
        (*out)[(*n)++] = (int32_t)v;
        text = end;
    }
    fprintf(stderr, "dgemma %s: expected token ids at \"%.20s\"\n", command, text);
    dg_free(*out);
    *out = NULL;
    return false;
}

/* ---- progress ---- */

static bool on_progress(void *user, double fraction)
{
    enum { WIDTH = 30 };
    cli_progress *p = user;
    if (p->next && !p->next(p->next_user, fraction))
        return false;
    if (dg_clock_now() - p->start < 1)
        return true;
    char bar[WIDTH + 1];
    int full = (int)(fraction * WIDTH);
    for (int i = 0; i < WIDTH; i++)
        bar[i] = i < full ? '#' : '.';
    bar[WIDTH] = '\0';
    fprintf(stderr, "\rloading [%s] %3.0f %%", bar, 100 * fraction);
    p->bar_drawn = true;
    return true;
}

void cli_progress_attach(cli_progress *p, dgemma_engine_options *opt)
{
    *p = (cli_progress){
        .start = dg_clock_now(), .next = opt->on_progress, .next_user = opt->progress_user};
    if (isatty(STDERR_FILENO)) {
        opt->on_progress = on_progress;
        opt->progress_user = p;
    }
}

void cli_progress_end(cli_progress *p)
{
    if (p->bar_drawn)
        fputs("\r\033[K", stderr); /* back to an empty line */
}

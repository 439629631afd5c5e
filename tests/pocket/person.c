#include "pocket/person.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "pocket/words.h"

enum {
    MAX_LIST_BYTES = 1 << 24,
    MAX_RULE = 1024,
    MIN_STORY_SENTENCES = 5,
    MIN_STORY_WORDS = 30,
    MAX_LINES = 64,
};

typedef struct judging {
    const person_check *check;
    const char *answer;
    word *words; /* of the answer */
    size_t n;
    char *why;
    size_t why_size;
} judging;

DG_PRINTF(2, 3) static bool wrong(judging *j, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(j->why, j->why_size, fmt, args);
    va_end(args);
    return false;
}

/* ---- lists ---- */

static dgemma_status read_list(dg_buf *list, const char *folder, const char *name,
                               dgemma_error *err)
{
    char path[1024];
    dg_buf_init(list, MAX_LIST_BYTES);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return dg_file_read(list, path, err);
}

/* Compares a word with a line of the list. */
static int compare(const char *text, size_t len, const char *line)
{
    for (size_t i = 0; i < len; i++) {
        int c = tolower((unsigned char)text[i]), d = line[i] == '\n' ? 0 : (unsigned char)line[i];
        if (c != d || !d)
            return c - d;
    }
    return line[len] == '\n' || !line[len] ? 0 : -1;
}

bool person_knows(const char *list, const char *text, size_t len)
{
    size_t low = 0, high = strlen(list);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        while (middle > low && list[middle - 1] != '\n')
            middle--;
        int order = compare(text, len, list + middle);
        if (order == 0)
            return true;
        if (order < 0)
            high = middle;
        else
            low = (size_t)(strchrnul(list + middle, '\n') - list) + 1;
    }
    return false;
}

static bool on_line(const char *line, const char *end, const char *text, size_t len)
{
    while (line < end) {
        const char *stop = memchr(line, ' ', (size_t)(end - line));
        stop = stop ? stop : end;
        if ((size_t)(stop - line) == len && strncasecmp(line, text, len) == 0)
            return true;
        line = stop + 1;
    }
    return false;
}

bool person_rhymes(const char *list, const char *a, size_t a_len, const char *b, size_t b_len)
{
    if (a_len == b_len && strncasecmp(a, b, a_len) == 0)
        return false;
    for (const char *end; *list; list = *end ? end + 1 : end) {
        end = strchrnul(list, '\n');
        if (on_line(list, end, a, a_len) && on_line(list, end, b, b_len))
            return true;
    }
    return false;
}

/* ---- words that are words ---- */

static bool is_number(const char *s, size_t n)
{
    while (n && (isdigit((unsigned char)*s) || *s == '.'))
        s++, n--;
    return n == 0;
}

static bool stands_in(const char *text, const char *s, size_t n)
{
    char copy[64];
    snprintf(copy, sizeof copy, "%.*s", (int)n, s);
    return n < sizeof copy && words_contain(text, copy);
}

/* Of letters; those with a hyphen are known by their parts, what ends with 's or n't by what is
 * before that. */
static bool is_word(const judging *j, const char *list, const char *s, size_t n)
{
    if (n <= 1 || is_number(s, n) || person_knows(list, s, n) || stands_in(j->check->typed, s, n) ||
        stands_in(j->check->rule, s, n))
        return true;
    const char *hyphen = memchr(s, '-', n), *mark = memchr(s, '\'', n);
    if (hyphen)
        return is_word(j, list, s, (size_t)(hyphen - s)) &&
               is_word(j, list, hyphen + 1, n - (size_t)(hyphen - s) - 1);
    return mark && is_word(j, list, s, (size_t)(mark - s));
}

static bool all_words_known(judging *j, const char *list)
{
    for (size_t i = 0; i < j->n; i++)
        if (!j->words[i].mark && !is_word(j, list, j->words[i].text, j->words[i].len))
            return wrong(j, "\"%.*s\" is not a word", (int)j->words[i].len, j->words[i].text);
    return true;
}

/* ---- sentences ---- */

static bool is_mark(const word *w, const char *marks)
{
    return w->mark && strchr(marks, *w->text);
}

/* Nothing twice in a row: words, or marks within or behind a sentence. */
static bool flows(judging *j)
{
    for (size_t i = 1; i < j->n; i++) {
        const word *a = &j->words[i - 1], *b = &j->words[i];
        if (is_mark(a, ".,;:!?") && is_mark(b, ".,;:!?"))
            return wrong(j, "two marks side by side");
        if (!a->mark && words_equal(a, b, true) && !is_number(a->text, a->len))
            return wrong(j, "\"%.*s\" twice", (int)a->len, a->text);
    }
    return true;
}

static bool is_sentence(judging *j)
{
    const word *last = j->n ? &j->words[j->n - 1] : NULL;
    if (j->n < 3 || islower((unsigned char)*j->words[0].text))
        return wrong(j, "no sentence begins it");
    if (is_mark(last, "\"") && j->n > 1)
        last--;
    if (!is_mark(last, ".!?"))
        return wrong(j, "no sentence ends it");
    return flows(j);
}

/* The first word of the sentence that is followed by `left` others. */
static size_t begin_of_last(const judging *j, int left)
{
    size_t i = j->n;
    for (; i > 0; i--)
        if (i < j->n && is_mark(&j->words[i - 1], ".!?") && left-- == 0)
            break;
    return i;
}

/* ---- stories ---- */

/* Somebody who is named again, or something that first comes and is then "the" one. */
static bool has_hero(const judging *j)
{
    for (size_t i = 1; i < j->n; i++)
        for (size_t k = 1; k < i; k++) {
            const word *w = &j->words[i], *first = &j->words[k];
            if (w->mark || w->len < 3 || !words_equal(w, first, true))
                continue;
            bool named = isupper((unsigned char)*w->text) && isupper((unsigned char)*first->text) &&
                         !j->words[k - 1].mark && !j->words[i - 1].mark;
            if (named ||
                (j->words[i - 1].len == 3 && strncasecmp(j->words[i - 1].text, "the", 3) == 0))
                return true;
        }
    return false;
}

static bool has_end(const judging *j)
{
    static const char *const ends[] = {
        "end",   "ever",  "friend", "friends", "home",    "happy",   "happily", "since", "day",
        "again", "slept", "asleep", "smiled",  "smiling", "laughed", "night",   "never", "always"};
    const char *rest = j->words[begin_of_last(j, 1)].text;
    for (size_t i = 0; i < DG_COUNT(ends); i++)
        if (words_contain(rest, ends[i]))
            return true;
    return false;
}

static bool is_story(judging *j)
{
    int n_sentence = 0, n_word = 0;
    if (!is_sentence(j))
        return false;
    for (size_t i = 0; i < j->n; i++) {
        n_sentence += is_mark(&j->words[i], ".!?");
        n_word += !j->words[i].mark;
    }
    if (n_sentence < MIN_STORY_SENTENCES || n_word < MIN_STORY_WORDS)
        return wrong(j, "%d sentences of %d words are no story", n_sentence, n_word);
    if (!has_hero(j))
        return wrong(j, "nobody is named twice");
    return has_end(j) ? true : wrong(j, "it has no end");
}

/* ---- rhymes ---- */

/* The last words of the lines of the answer. */
static int line_ends(const judging *j, const word **ends)
{
    int n = 0;
    for (size_t i = 0; i < j->n && n < MAX_LINES; i++) {
        const word *w = &j->words[i];
        const char *next = i + 1 < j->n ? j->words[i + 1].text : NULL;
        if (!w->mark)
            ends[n] = w;
        bool line_ends = !next || memchr(w->text, '\n', (size_t)(next - w->text));
        n += line_ends && ends[n];
    }
    return n;
}

static bool is_rhyme(judging *j, const char *list)
{
    const word *ends[MAX_LINES + 1] = {0};
    int n = line_ends(j, ends);
    if (n < 2)
        return wrong(j, "no lines");
    if (!flows(j))
        return false;
    for (int i = 1; i < n; i++)
        for (int k = i > 1 ? i - 2 : 0; k < i; k++)
            if (person_rhymes(list, ends[k]->text, ends[k]->len, ends[i]->text, ends[i]->len))
                return true;
    return wrong(j, "no two lines rhyme");
}

/* ---- rules ---- */

/* The part of *text up to the separator, trimmed; *text goes on behind it, NULL at the end. */
static char *next_part(char **text, const char *separator)
{
    char *part = *text + strspn(*text, " "), *end = strstr(*text, separator);
    *text = end ? end + strlen(separator) : NULL;
    if (end)
        *end = '\0';
    for (size_t n = strlen(part); n && part[n - 1] == ' '; n--)
        part[n - 1] = '\0';
    return part;
}

static const char *behind(const char *text, const char *name)
{
    size_t n = strlen(name);
    if (strncmp(text, name, n) != 0 || (text[n] && text[n] != ' '))
        return NULL;
    return text + n + strspn(text + n, " ");
}

/* The number at s, where a digit stands; what follows it. Commas between digits do not count. */
static const char *read_number(double *value, const char *s)
{
    char digits[64];
    size_t n = 0;
    for (; isdigit((unsigned char)*s) || ((*s == ',' || *s == '.') && isdigit((unsigned char)s[1]));
         s++)
        if (*s != ',' && n + 1 < sizeof digits)
            digits[n++] = *s;
    digits[n] = '\0';
    *value = strtod(digits, NULL);
    return s;
}

/* A hyphen is the sign of the number behind it unless a word or a number ends there. */
static bool last_number_is(judging *j, double wanted)
{
    bool found = false;
    double value = 0;
    for (const char *s = j->answer; *s;) {
        if (!isdigit((unsigned char)*s)) {
            s++;
            continue;
        }
        size_t at = (size_t)(s - j->answer);
        bool negative = at && s[-1] == '-' && (at == 1 || !isalnum((unsigned char)s[-2]));
        s = read_number(&value, s);
        value = negative ? -value : value;
        found = true;
    }
    if (found && value == wanted)
        return true;
    return wrong(j, "the last number is not %g", wanted);
}

static bool stands_in_order(judging *j, const char *list)
{
    size_t n_wanted, at = 0;
    word *wanted = words_split(list, &n_wanted);
    bool ok = wanted != NULL;
    for (size_t i = 0; ok && i < j->n; i++)
        for (size_t k = 0; k < n_wanted; k++)
            if (!j->words[i].mark && words_equal(&j->words[i], &wanted[k], true)) {
                ok = k == at++;
                break;
            }
    ok = ok && at == n_wanted;
    dg_free(wanted);
    return ok ? true : wrong(j, "not in this order: %s", list);
}

static bool does_not_know(judging *j)
{
    static const char *const ways[] = {"not know",  "don't know",      "cannot",     "can't",
                                       "not able",  "unable",          "not sure",   "no idea",
                                       "could not", "not learned",     "not learnt", "beyond me",
                                       "only know", "not have learned"};
    for (size_t i = 0; i < DG_COUNT(ways); i++)
        if (words_contain(j->answer, ways[i]))
            return is_sentence(j);
    return wrong(j, "it does not say that it does not know");
}

static bool is_one(judging *j, const char *phrase)
{
    const char *rest;
    if ((rest = behind(phrase, "number")) && *rest)
        return last_number_is(j, strtod(rest, NULL));
    if ((rest = behind(phrase, "order")) && *rest)
        return stands_in_order(j, rest);
    if (strcmp(phrase, "unknown") == 0)
        return does_not_know(j);
    if (strcmp(phrase, "sentence") == 0)
        return is_sentence(j);
    if (words_contain(j->answer, phrase))
        return true;
    return wrong(j, "\"%s\" is missing", phrase);
}

/* How many of the alternatives hold. */
static int count(judging *j, char *phrases, int *of)
{
    int n = 0;
    *of = 0;
    while (phrases) {
        const char *phrase = next_part(&phrases, "|");
        n += *phrase && is_one(j, phrase);
        *of += *phrase != '\0';
    }
    return n;
}

static dgemma_status with_rhymes(bool *holds, judging *j, dgemma_error *err)
{
    dg_buf list;
    dgemma_status st = read_list(&list, j->check->folder, "rhymes.txt", err);
    if (!st)
        *holds = is_rhyme(j, list.data ? list.data : "");
    dg_buf_clear(&list);
    return st;
}

/* *holds: one rule, between two &, is kept. */
static dgemma_status keeps(bool *holds, judging *j, char *rule, dgemma_error *err)
{
    int of, least = 1;
    char *rest = NULL;
    dgemma_status st = DGEMMA_OK;
    *holds = true;
    if ((rest = (char *)behind(rule, "not"))) {
        *holds = count(j, rest, &of) == 0;
        return *holds ? st : (wrong(j, "what must not stand there does: %s", rest), st);
    }
    if ((rest = (char *)behind(rule, "story")))
        *holds = is_story(j);
    else if ((rest = (char *)behind(rule, "rhyme")))
        st = with_rhymes(holds, j, err);
    if (st || !*holds)
        return st;
    if (rest) {
        *holds = count(j, rest, &least) == least;
        return st;
    }
    if (isdigit((unsigned char)*rule) && (rest = strstr(rule, " of "))) {
        least = atoi(rule);
        rule = rest + 4;
    }
    *holds = count(j, rule, &of) >= least;
    if (!of)
        return dg_fail(err, DGEMMA_E_FORMAT, "an empty rule");
    return st;
}

static dgemma_status judge(bool *right, judging *j, dgemma_error *err)
{
    char copy[MAX_RULE], *rules = copy;
    dg_buf list;
    if (strlen(j->check->rule) >= sizeof copy)
        return dg_fail(err, DGEMMA_E_FORMAT, "a rule of more than %d bytes", MAX_RULE);
    dgemma_status st = read_list(&list, j->check->folder, "words.txt", err);
    *right = !st && all_words_known(j, list.data ? list.data : "");
    dg_buf_clear(&list);
    strcpy(copy, j->check->rule);
    while (!st && *right && rules)
        st = keeps(right, j, next_part(&rules, "&"), err);
    if (!st && *right)
        j->why[0] = '\0';
    return st;
}

dgemma_status person_accepts(bool *right, char *why, size_t n, const person_check *check,
                             const char *answer, dgemma_error *err)
{
    judging j = {.check = check, .answer = answer, .why = why, .why_size = n};
    j.words = words_split(answer, &j.n);
    if (!j.words)
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for the words of an answer");
    dgemma_status st = judge(right, &j, err);
    dg_free(j.words);
    return st;
}

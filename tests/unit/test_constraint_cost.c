/* What a constraint may cost: whatever it is, it is refused or made and used within 100 ms of one
 * thread and 64 MB. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/common.h"
#include "dgemma.h"
#include "dgemma_tools.h"
#include "suites.h"
#include "support/sanitized.h"

static char *repeated(const char *head, const char *part, size_t n, const char *tail)
{
    size_t len = strlen(part);
    char *text = malloc(strlen(head) + n * len + strlen(tail) + 1);
    strcpy(text, head);
    size_t at = strlen(head);
    for (size_t i = 0; i < n; i++, at += len)
        memcpy(text + at, part, len);
    strcpy(text + at, tail);
    return text;
}

enum { MOST_MS = 100, MOST_BYTES = 64 << 20, SANITIZED_TIMES = 50, TRIES = 3 };
enum outcome { FINE, SLOW, LARGE, SILENT, TAKEN, OUTCOMES };

static double thread_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* Memory from here on, as far as the system knows. Sanitizers reserve all there is. */
static bool limit_memory(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    bool known = f && fscanf(f, "%ld", &pages) == 1;
    if (f)
        fclose(f);
    rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + MOST_BYTES;
    return known && !setrlimit(RLIMIT_AS, &(struct rlimit){most, most});
}

static enum outcome use_hostile(dgemma_constraint_kind kind, const char *text, bool refused)
{
    dgemma_constraint *c = NULL;
    dgemma_error err = {0};
    char *drawn = NULL;
    size_t len;
    dgemma_constraint_options opt = {.kind = kind, .text = text, .text_len = strlen(text)};
    dgemma_status st = dgemma_constraint_create(&c, &opt, &err);
    if (!st)
        st = dgemma_constraint_random(c, 7, 0, 30, &drawn, &len, &err);
    dgemma_free(drawn);
    dgemma_constraint_free(c);
    if (st == DGEMMA_E_NOMEM)
        return LARGE;
    if (!st && refused)
        return TAKEN;
    return st && !err.msg[0] ? SILENT : FINE;
}

/* In a process of its own, whose memory has an end. The best time of some counts: the machine has
 * others to serve. */
static enum outcome try_hostile(dgemma_constraint_kind kind, const char *text, bool refused)
{
    bool sanitized = DG_TEST_ADDRESS_SANITIZER || DG_TEST_THREAD_SANITIZER;
    double best = INFINITY;
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
        enum outcome found = sanitized || limit_memory() ? FINE : LARGE;
        for (int i = 0; i < TRIES && found == FINE && best > MOST_MS; i++) {
            double start = thread_ms();
            found = use_hostile(kind, text, refused);
            best = fmin(best, thread_ms() - start);
        }
        _exit(found != FINE                                        ? (int)found
              : best > MOST_MS * (sanitized ? SANITIZED_TIMES : 1) ? SLOW
                                                                   : FINE);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? (enum outcome)WEXITSTATUS(status) : OUTCOMES;
}

START_TEST(hostile_input_is_refused_soon)
{
    static const char *const wrong[] = {[SLOW] = "slow",
                                        [LARGE] = "too large",
                                        [SILENT] = "refused without a word",
                                        [TAKEN] = "not refused",
                                        [OUTCOMES] = "a crash"};
    static const struct {
        dgemma_constraint_kind kind;
        const char *head, *part;
        size_t n;
        const char *tail;
        bool refused;
    } list[] = {
        {DGEMMA_CONSTRAINT_REGEX, "", "(", 5000, "", true},
        {DGEMMA_CONSTRAINT_REGEX, "[ab]*a", "[ab]", 0, "[ab]{24}", true},
        {DGEMMA_CONSTRAINT_REGEX, "((a{1,100})", "{1,100})", 1, "{1,100}", true},
        {DGEMMA_CONSTRAINT_REGEX, "", "(?:a|b?", 90, "x", true},
        {DGEMMA_CONSTRAINT_REGEX, "", "a?", 4000, "", false},
        {DGEMMA_CONSTRAINT_REGEX, "", "(a*b*)*", 2000, "", false},
        {DGEMMA_CONSTRAINT_REGEX, "", ".*a", 40, "", false},
        {DGEMMA_CONSTRAINT_REGEX, "x", "|.{0,4000}", 200, "", false},
        {DGEMMA_CONSTRAINT_JSON_SCHEMA, "", "[", 5000, "", true},
        {DGEMMA_CONSTRAINT_JSON_SCHEMA, "{\"$ref\": \"#\"}", "", 0, "", true},
        {DGEMMA_CONSTRAINT_JSON_SCHEMA, "", "{\"items\":", 90, "{}", true},
        {DGEMMA_CONSTRAINT_JSON_SCHEMA, "{\"enum\": [1", ", 1", 20000, "]}", false},
        {DGEMMA_CONSTRAINT_JSON_SCHEMA, "{\"anyOf\": [{}", ", {\"$ref\": \"#/anyOf/1\"}", 50, "]}",
         true},
        {DGEMMA_CONSTRAINT_JSON_SCHEMA, "{\"allOf\": [{}",
         ", {\"anyOf\": [{\"minimum\": 1}, {\"maximum\": 2}, {\"minLength\": 2}]}", 40, "]}",
         false},
        {DGEMMA_CONSTRAINT_JSON_SCHEMA, "", " ", 4 << 20, "", true},
        {DGEMMA_CONSTRAINT_JSON_SCHEMA, "{\"description\": \"", "x", 4 << 20, "\"}", false},
        {DGEMMA_CONSTRAINT_REGEX, "", "a", 4 << 20, "", true},
        {DGEMMA_CONSTRAINT_GRAMMAR, "root ::= ", "(", 5000, "", true},
        {DGEMMA_CONSTRAINT_GRAMMAR, "root ::= \"", "a", 4 << 20, "\"", true},
        {DGEMMA_CONSTRAINT_GRAMMAR, "root ::= a\na ::= \"\"", " | \"(\" a \")\" a", 500, "", false},
        {DGEMMA_CONSTRAINT_GRAMMAR, "root ::= ", "[ab]* \"a\" ", 60, "[ab]{30}", false},
    };
    for (size_t i = 0; i < DG_COUNT(list); i++) {
        char *text = repeated(list[i].head, list[i].part, list[i].n, list[i].tail);
        enum outcome found = try_hostile(list[i].kind, text, list[i].refused);
        ck_assert_msg(found == FINE, "case %zu: %s", i, wrong[found]);
        free(text);
    }
}
END_TEST

Suite *constraint_cost_suite(void)
{
    Suite *s = suite_create("constraint_cost");
    TCase *c = tcase_create("constraint_cost");
    tcase_add_test(c, hostile_input_is_refused_soon);
    tcase_set_timeout(c, 120);
    suite_add_tcase(s, c);
    return s;
}

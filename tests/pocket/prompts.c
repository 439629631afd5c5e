#include "pocket/prompts.h"
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "pocket/people.h"

enum { MAX_FILE_BYTES = 1 << 29, MAX_PROMPTS = 1 << 20 };

uint64_t pocket_seed(const char *id)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (; *id; id++)
        hash = (hash ^ (unsigned char)*id) * 0x100000001B3u;
    return hash;
}

static void clear_prompt(pocket_prompt *p)
{
    json_decref(p->line);
    dg_free(p->id);
}

/* The family and the id in it; NULL: one is missing, or memory is out. */
static char *full_id(const char *family, const json_t *id)
{
    char text[128];
    int n = -1;
    if (family && json_is_integer(id))
        n = snprintf(text, sizeof text, "%s/%lld", family, (long long)json_integer_value(id));
    else if (family && json_is_string(id))
        n = snprintf(text, sizeof text, "%s/%s", family, json_string_value(id));
    return n > 0 && (size_t)n < sizeof text ? dg_strdup(text) : NULL;
}

static dgemma_status read_prompt(pocket_prompt *p, const char *line, size_t len, dgemma_error *err)
{
    json_error_t where;
    *p = (pocket_prompt){.line = json_loadb(line, len, JSON_REJECT_DUPLICATES, &where)};
    if (!p->line)
        return dg_fail(err, DGEMMA_E_FORMAT, "%s", where.text);
    p->family = json_string_value(json_object_get(p->line, "family"));
    p->id = full_id(p->family, json_object_get(p->line, "id"));
    p->messages = json_object_get(p->line, "messages");
    p->tools = json_object_get(p->line, "tools");
    p->check = json_object_get(p->line, "check");
    if (!p->id || !json_array_size(p->messages) || !json_is_object(p->check))
        return dg_fail(err, DGEMMA_E_FORMAT, "family, id, messages or check is missing");
    if (!json_array_size(p->tools))
        p->tools = NULL;
    const json_t *thought = json_object_get(p->line, "thought");
    p->thinking = json_is_true(json_object_get(p->line, "thinking"));
    p->thought_due = thought ? json_is_true(thought) : p->thinking;
    p->n_prompt = (int)json_integer_value(json_object_get(p->line, "n_prompt"));
    p->least = (int)json_integer_value(json_object_get(p->line, "least"));
    p->follows = json_is_true(json_object_get(p->line, "follows"));
    p->seed = pocket_seed(p->id);
    return DGEMMA_OK;
}

static dgemma_status add_prompt(pocket_prompts *p, const char *line, size_t len, size_t *cap,
                                dgemma_error *err)
{
    if (p->n == MAX_PROMPTS)
        return dg_fail(err, DGEMMA_E_LIMIT, "more than %d prompts", MAX_PROMPTS);
    if (p->n >= *cap) {
        *cap = 2 * p->n + 64;
        pocket_prompt *more = dg_array_resize(p->at, *cap, sizeof *more);
        if (!more)
            return dg_fail(err, DGEMMA_E_NOMEM, "out of memory for %zu prompts", *cap);
        p->at = more;
    }
    dgemma_status st = read_prompt(&p->at[p->n], line, len, err);
    if (st)
        clear_prompt(&p->at[p->n]);
    else
        p->n++;
    return st;
}

dgemma_status pocket_prompts_parse(pocket_prompts *p, const char *text, const char *name,
                                   dgemma_error *err)
{
    size_t cap = p->n;
    int number = 1;
    for (const char *end; *text; text = *end ? end + 1 : end, number++) {
        end = strchrnul(text, '\n');
        if (end == text)
            continue;
        dgemma_error why = {0};
        dgemma_status st = add_prompt(p, text, (size_t)(end - text), &cap, &why);
        if (st)
            return dg_fail(err, st, "%s: line %d: %s", name, number, why.msg);
    }
    return DGEMMA_OK;
}

/* What people type, as lines of JSON. */
static dgemma_status translate(dg_buf *text, const char *path, dgemma_error *err)
{
    dg_buf lines;
    dg_buf_init(&lines, MAX_FILE_BYTES);
    dgemma_status st = people_as_jsonl(&lines, text->data, err);
    dg_buf_clear(text);
    *text = lines;
    return st ? dg_fail_prefix(err, st, path) : DGEMMA_OK;
}

dgemma_status pocket_prompts_read(pocket_prompts *p, const char *path, dgemma_error *err)
{
    dg_buf text;
    size_t n = strlen(path);
    dg_buf_init(&text, MAX_FILE_BYTES);
    dgemma_status st = dg_file_read(&text, path, err);
    if (!st && text.data && n > 4 && strcmp(path + n - 4, ".txt") == 0)
        st = translate(&text, path, err);
    if (!st && text.data)
        st = pocket_prompts_parse(p, text.data, path, err);
    dg_buf_clear(&text);
    return st;
}

void pocket_prompts_clear(pocket_prompts *p)
{
    for (size_t i = 0; i < p->n; i++)
        clear_prompt(&p->at[i]);
    dg_free(p->at);
    *p = (pocket_prompts){0};
}

/* How many conversations there are of the family of prompt i: before it, and in all. */
static size_t count_family(const pocket_prompts *p, size_t i, size_t *all)
{
    size_t before = 0;
    *all = 0;
    for (size_t k = 0; k < p->n; k++) {
        bool same = !p->at[k].follows && strcmp(p->at[k].family, p->at[i].family) == 0;
        before += same && k < i;
        *all += same;
    }
    return before;
}

void pocket_prompts_select(pocket_prompts *p, const char *family, size_t limit)
{
    bool *keep = dg_calloc(p->n, sizeof *keep);
    for (size_t i = 0; keep && i < p->n; i++) {
        size_t n = 0, before = limit ? count_family(p, i, &n) : 0;
        /* one at each place where i * limit / n steps on */
        if (p->at[i].follows && i > 0) {
            keep[i] = keep[i - 1];
            continue;
        }
        keep[i] = (!family || strcmp(p->at[i].family, family) == 0) &&
                  (!limit || limit >= n || before * limit % n < limit);
    }
    size_t kept = 0;
    for (size_t i = 0; i < p->n; i++)
        if (keep && keep[i])
            p->at[kept++] = p->at[i];
        else
            clear_prompt(&p->at[i]);
    p->n = kept;
    dg_free(keep);
}

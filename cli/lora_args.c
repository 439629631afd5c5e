#include "lora_args.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"

/* Whether a word is meant as a number, which may be one that cannot be. */
static bool is_number(const char *text, float *value)
{
    char *end;
    float v = strtof(text, &end);
    if (end == text || *end)
        return false;
    *value = v;
    return true;
}

/* The first = behind a name, which ends where a path begins; NULL: there is none. */
static char *find_equals(char *word)
{
    char *equals = strchr(word, '='), *slash = strchr(word, '/');
    return equals && (!slash || equals < slash) ? equals : NULL;
}

static bool exists(const char *word, const char *end)
{
    char path[4096];
    size_t n = (size_t)(end - word);
    if (!n || n >= sizeof path)
        return false;
    memcpy(path, word, n);
    path[n] = '\0';
    return dg_file_exists(path);
}

bool cli_add_lora(void *target, const char *text)
{
    cli_lora_args *a = target;
    char *word = (char *)text, *equals = find_equals(word), *path = equals ? equals + 1 : word;
    char *colon = strrchr(path, ':');
    float scale = 1, other;
    if (a->n == DGEMMA_MAX_ADAPTERS || !*path || equals == word)
        return false;
    if (colon && is_number(colon + 1, &scale)) {
        if (colon == path || !(fabsf(scale) <= 1000))
            return false;
    } else if (colon && exists(path, colon) && !dg_file_exists(path)) {
        return false; /* what is behind it is no number */
    } else {
        colon = NULL; /* of the path */
    }
    if (equals && !colon && is_number(path, &other) && exists(word, equals) &&
        !dg_file_exists(path))
        return false; /* a scale stands behind a colon */
    if (equals)
        *equals = '\0';
    if (colon)
        *colon = '\0';
    a->list[a->n] = (dgemma_adapter){equals ? word : NULL, path, scale};
    a->use[a->n] = (dgemma_adapter_use){(int)a->n, 1};
    a->n++;
    return true;
}

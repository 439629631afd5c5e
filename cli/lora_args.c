#include "lora_args.h"
#include <math.h>
#include <string.h>
#include "base/file.h"

_Static_assert(DGEMMA_MAX_ADAPTERS == 64, "the number is in a message");

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

/* What a word lacks; NULL: nothing. *colon is the one in front of the scale, NULL where there is
 * none and any colon belongs to the path. */
static const char *find_scale(const char *word, const char *equals, const char *path, char **colon,
                              float *scale)
{
    float other;
    if (equals == word)
        return "a name in front of the =";
    if (!*path)
        return equals ? "a path behind the =" : "a path";
    if (*colon && cli_read_decimal(*colon + 1, scale)) {
        if (*colon == path)
            return "a path in front of the scale";
        return fabsf(*scale) <= 1000 ? NULL : "a scale from -1000 to 1000";
    }
    if (*colon && exists(path, *colon) && !dg_file_exists(path))
        return "a decimal number behind the colon";
    *colon = NULL;
    if (equals && cli_read_decimal(path, &other) && exists(word, equals) && !dg_file_exists(path))
        return "the scale behind a colon";
    return NULL;
}

bool cli_add_lora(void *target, const char *text)
{
    cli_lora_args *a = target;
    char *word = (char *)text, *equals = find_equals(word), *path = equals ? equals + 1 : word;
    char *colon = strrchr(path, ':');
    float scale = 1;
    a->wanted = a->n < DGEMMA_MAX_ADAPTERS ? find_scale(word, equals, path, &colon, &scale)
                                           : "no more adapters: 64 are there";
    if (a->wanted)
        return false;
    if (equals)
        *equals = '\0';
    if (colon)
        *colon = '\0';
    a->list[a->n] = (dgemma_adapter){equals ? word : NULL, path, scale};
    a->use[a->n] = (dgemma_adapter_use){(int)a->n, 1};
    a->n++;
    return true;
}

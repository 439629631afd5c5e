#include "lora_args.h"
#include <string.h>

/* What is in front of the first = is a name, unless a path has begun there. */
static char *cut_name(char *text)
{
    char *equals = strchr(text, '='), *slash = strchr(text, '/');
    if (!equals || (slash && slash < equals))
        return NULL;
    *equals = '\0';
    return equals + 1;
}

bool cli_add_lora(void *target, const char *text)
{
    cli_lora_args *a = target;
    float scale = 1;
    if (a->n == DGEMMA_MAX_ADAPTERS)
        return false;
    char *word = (char *)text, *colon = strrchr(word, ':');
    if (colon && cli_set_float(&scale, colon + 1))
        *colon = '\0';
    char *path = cut_name(word);
    a->list[a->n] = (dgemma_adapter){path ? word : NULL, path ? path : word, scale};
    if (!*a->list[a->n].path || (path && !*word))
        return false;
    a->use[a->n] = (dgemma_adapter_use){(int)a->n, 1};
    a->n++;
    return true;
}

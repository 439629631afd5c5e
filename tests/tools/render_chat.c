/* Prints conversations as the library renders them, for comparison with the Jinja templates:
 *
 *   render_chat A|B <conversations.jsonl
 *
 * A line in is a conversation (dg_conversation_from_json), a line out the rendering as a JSON
 * string, or an object {"refused": why}. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "text/chat_template.h"

static void print_json(json_t *value)
{
    json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(value);
}

static void render(const char *line, size_t len, dg_chat_revision revision)
{
    dg_conversation *c = NULL;
    dg_prompt prompt;
    dgemma_error err;
    dg_prompt_init(&prompt);
    dgemma_status st = dg_conversation_from_json(&c, line, len, &err);
    if (!st)
        st = dg_chat_render(c, revision, &prompt, &err);
    if (st)
        print_json(json_pack("{s:s}", "refused", err.msg));
    else
        print_json(json_stringn(prompt.text.data, prompt.text.len));
    dg_prompt_clear(&prompt);
    dg_conversation_free(c);
}

int main(int argc, char **argv)
{
    if (argc != 2 || (strcmp(argv[1], "A") != 0 && strcmp(argv[1], "B") != 0)) {
        fprintf(stderr, "usage: render_chat A|B <conversations.jsonl\n");
        return EXIT_FAILURE;
    }
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;)
        render(line, (size_t)n, argv[1][0] == 'A' ? DG_CHAT_REVISION_A : DG_CHAT_REVISION_B);
    free(line);
    return EXIT_SUCCESS;
}

/* Shows a canvas settle, step by step, and takes part in it: the first word is given, so every step
 * finds it in its place and the model writes around it. Two requests run at once, each with its own
 * events.
 *
 *     cc watch.c $(pkg-config --cflags --libs dgemma) -o watch
 *     ./watch MODEL "Tell me a story." Once */
#include <dgemma.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PINNED = 32 };

typedef struct pinned {
    int32_t ids[MAX_PINNED];
    size_t n;
} pinned;

/* Runs between two steps, on the engine's thread: puts the given word back where noise may have
 * replaced it. */
static bool on_step(void *user, const dgemma_step *step)
{
    const pinned *p = user;
    if (step->block == 0)
        for (size_t i = 0; i < p->n && i < (size_t)step->n; i++)
            step->canvas[i] = p->ids[i];
    return true;
}

static void show(const dgemma_engine *engine, const dgemma_event *e)
{
    dgemma_error err;
    char *text;
    if (dgemma_detokenize(engine, e->tokens, e->n_tokens, &text, NULL, &err) != DGEMMA_OK)
        return;
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = ' ';
    printf("block %d step %2d, entropy %5.2f: %.70s\n", e->block, e->step, (double)e->mean_entropy,
           text);
    dgemma_free(text);
}

/* Reads one request's events to the end. */
static int finish(const dgemma_engine *engine, dgemma_request *request)
{
    int failed = 1;
    for (dgemma_event e; dgemma_request_wait(request, &e, -1);) {
        if (e.kind == DGEMMA_EVENT_DRAFT)
            show(engine, &e);
        else if (e.kind == DGEMMA_EVENT_END && e.status != DGEMMA_OK)
            fprintf(stderr, "%s\n", e.text);
        else if (e.kind == DGEMMA_EVENT_END) {
            printf("-- %d tokens, %d steps, waited %.3f s for its turn\n", e.stats.n_output,
                   e.stats.n_steps, e.stats.queue_seconds);
            failed = 0;
        }
    }
    dgemma_request_free(request);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s MODEL PROMPT WORD\n", argv[0]);
        return 2;
    }
    dgemma_error err;
    dgemma_engine *engine;
    dgemma_engine_options options = dgemma_engine_defaults();
    options.model_path = argv[1];
    if (dgemma_engine_open(&engine, &options, &err) != DGEMMA_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }

    pinned word;
    dgemma_request *first, *second;
    dgemma_request_options request = dgemma_request_defaults(engine);
    request.chat_prompt = argv[2];
    request.max_tokens = 64;
    request.drafts = true;
    int failed = 1;
    if (dgemma_tokenize(engine, argv[3], strlen(argv[3]), false, word.ids, MAX_PINNED, &word.n,
                        &err) == DGEMMA_OK &&
        dgemma_request_submit(&first, engine, &request, &err) == DGEMMA_OK) {
        request.on_step = on_step;
        request.step_user = &word;
        if (dgemma_request_submit(&second, engine, &request, &err) == DGEMMA_OK) {
            failed = finish(engine, first);
            printf("\nand now with \"%s\" in front:\n", argv[3]);
            failed |= finish(engine, second);
        } else
            dgemma_request_free(first);
    }
    if (failed)
        fprintf(stderr, "%s\n", err.msg);
    dgemma_engine_close(engine);
    return failed;
}

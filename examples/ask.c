/* Asks a model one question and prints the answer.
 *
 *     cc ask.c $(pkg-config --cflags --libs dgemma) -o ask
 *     ./ask MODEL "What is the capital of France?" */
#include <dgemma.h>
#include <stdio.h>

static bool on_event(void *user, const dgemma_event *event)
{
    (void)user;
    if (event->kind == DGEMMA_EVENT_TEXT)
        fwrite(event->text, 1, event->text_len, stdout);
    fflush(stdout);
    return true; /* false would stop the answer */
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
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

    dgemma_request_options request = dgemma_request_defaults(engine);
    dgemma_stats stats;
    request.chat_prompt = argv[2];
    request.max_tokens = 200;
    dgemma_status status = dgemma_generate(engine, &request, on_event, NULL, &stats, &err);
    if (status == DGEMMA_OK)
        printf("\n[%d tokens in %d steps]\n", stats.n_output, stats.n_steps);
    else
        fprintf(stderr, "%s\n", err.msg);

    dgemma_engine_close(engine);
    return status == DGEMMA_OK ? 0 : 1;
}

#include "base/kv_type.h"
#include "request_args.h"
#include <math.h>
#include <string.h>

cli_request_args cli_request_defaults(void)
{
    dgemma_engine_options engine = dgemma_engine_defaults();
    engine.max_running = 1; /* one prompt at a time: smaller buffers */
    return (cli_request_args){.engine = engine,
                              .max_tokens = -1,
                              .think_budget = -1,
                              .steps = -1,
                              .stability = -1,
                              .canvas = -1,
                              .t_min = NAN,
                              .t_max = NAN,
                              .entropy_bound = NAN,
                              .confidence = NAN,
                              .temperature = NAN,
                              .top_p = NAN};
}

/* ---- setters ---- */

bool cli_request_add_media(cli_request_args *a, const char *path, bool video)
{
    if (a->n_media == CLI_MAX_MEDIA)
        return false;
    a->media[a->n_media++] = (dgemma_media){.path = path, .video = video};
    return true;
}

static bool add_image(void *target, const char *path)
{
    return cli_request_add_media(target, path, false);
}

static bool set_image_attention(void *target, const char *text)
{
    static const char *const names[] = {"whole", "window", "causal"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, names[i])) {
            *(dgemma_image_attention *)target = (dgemma_image_attention)i;
            return true;
        }
    return false;
}

static bool add_stop(void *target, const char *text)
{
    cli_request_args *a = target;
    if (a->n_stop == CLI_MAX_STOP || !*text)
        return false;
    a->stop[a->n_stop++] = text;
    return true;
}

/* ---- groups ---- */

void cli_options_add(cli_options *o, const cli_option *rows, size_t n)
{
    for (size_t i = 0; i < n && o->n < CLI_MAX_OPTION; i++)
        o->row[o->n++] = rows[i];
}

#define ADD(o, rows) cli_options_add(o, rows, sizeof rows / sizeof rows[0])

void cli_options_add_model(cli_options *o, cli_request_args *a)
{
    const cli_option rows[] = {
        {'m', "model", "PATH", "GGUF file or Hugging Face checkpoint folder (the pocket model)",
         cli_set_string, &a->engine.model_path},
        {0, "system", "TEXT", "instructions in front of the conversation", cli_set_string,
         &a->system},
        {0, "image", "FILE",
         "a picture for the prompt, where it says <|image|> or in front; may be repeated",
         add_image, a},
        {0, "image-tokens", "N",
         "what a picture may cost, at most 1120 tokens: best 70, 140, 280, 560 or 1120 (the "
         "model's)",
         cli_set_int, &a->image_tokens},
        {0, "image-attention", "RULE",
         "how a picture's tokens see each other: whole, window or causal (whole)",
         set_image_attention, &a->engine.image_attention},
        {0, "mmproj", "FILE", "GGUF file of the vision tower (mmproj*.gguf beside the model)",
         cli_set_string, &a->engine.mmproj},
        {0, "chat-template", "a|b", "revision of the chat format (the checkpoint's own)",
         cli_set_string, &a->engine.chat_template},
        {0, "lora", "[NAME=]PATH[:SCALE]", CLI_LORA_HELP, cli_add_lora, &a->lora},
    };
    ADD(o, rows);
}

static void add_ends(cli_options *o, cli_request_args *a)
{
    const cli_option rows[] = {
        {0, "stop", "TEXT", "end where this appears in the answer; may be repeated", add_stop, a},
        {'s', "seed", "N", "the same seed gives the same answer (0)", cli_set_seed, &a->seed},
    };
    ADD(o, rows);
}

void cli_options_add_answer(cli_options *o, cli_request_args *a)
{
    const cli_option rows[] = {
        {0, "answer", NULL, NULL, NULL, NULL},
        {0, "think", NULL, "let the model think first", cli_set_switch, &a->think},
        {0, "think-budget", "N", "tokens of thought before it must answer", cli_set_int,
         &a->think_budget},
        {0, "hide-thinking", NULL, "do not show thoughts", cli_set_switch, &a->hide_thinking},
        {'n', "max-tokens", "N", "longest answer, thoughts included (4096)", cli_set_int,
         &a->max_tokens},
    };
    ADD(o, rows);
    add_ends(o, a);
}

void cli_options_add_draws(cli_options *o, cli_request_args *a)
{
    const cli_option rows[] = {
        {0, "draws (the schedule's own by default)", NULL, NULL, NULL, NULL},
        {0, "temperature", "T", "on top of the schedule's; 0 draws the most likely token (1)",
         cli_set_float, &a->temperature},
        {0, "top-k", "N", "draw from the N most likely tokens", cli_set_int, &a->top_k},
        {0, "top-p", "P", "draw from as few tokens as have this probability together",
         cli_set_float, &a->top_p},
        {0, "min-p", "P", "draw from tokens this likely, compared with the most likely one",
         cli_set_float, &a->min_p},
    };
    ADD(o, rows);
}

void cli_options_add_diffusion(cli_options *o, cli_request_args *a)
{
    const cli_option rows[] = {
        {0, "diffusion (defaults: the model's own)", NULL, NULL, NULL, NULL},
        {0, "steps", "N", "most denoising steps for a block", cli_set_int, &a->steps},
        {0, "t-min", "T", "temperature at the last step", cli_set_float, &a->t_min},
        {0, "t-max", "T", "temperature at the first step", cli_set_float, &a->t_max},
        {0, "entropy-bound", "NATS", "uncertainty that one step may accept", cli_set_float,
         &a->entropy_bound},
        {0, "stability", "N", "steps without a change before a block may end", cli_set_int,
         &a->stability},
        {0, "confidence", "NATS", "mean entropy below which a block may end", cli_set_float,
         &a->confidence},
        {0, "canvas", "N", "tokens in a block", cli_set_int, &a->canvas},
        {0, "settled", "N",
         "send the beginning of a block once it has held for N steps, and pin it", cli_set_int,
         &a->settled},
    };
    ADD(o, rows);
}

void cli_options_add_machine(cli_options *o, cli_request_args *a)
{
    const cli_option rows[] = {
        {0, "machine", NULL, NULL, NULL, NULL},
        {0, "device", "NAME", "what computes: cpu, cuda, cuda:N or auto (auto)", cli_set_string,
         &a->engine.device},
        {0, "weights", "FORM",
         "made narrower on a GPU: experts fp8 or int4, the rest fp8 (as stored)", cli_set_string,
         &a->engine.weights},
        {'t', "threads", "N", "threads (one for each processor)", cli_set_int,
         &a->engine.n_threads},
        {'c', "context", "N", "longest prompt and answer together (the model's)", cli_set_int,
         &a->engine.context_length},
        {0, "kv-type", "TYPE", "keys and values as " DG_KV_TYPES " (bf16)", cli_set_string,
         &a->kv_type},
        {0, "cpu-flags", "NAME", "instruction set: neon, i8mm, bf16, avx2, vnni, amx or ref (best)",
         cli_set_string, &a->engine.cpu},
        {0, "profile", "NAME", "products on quantised weights: integer or float (integer)",
         cli_set_string, &a->engine.profile},
    };
    ADD(o, rows);
}

void cli_options_add_request(cli_options *o, cli_request_args *a)
{
    cli_options_add_model(o, a);
    cli_options_add_answer(o, a);
    cli_options_add_draws(o, a);
    cli_options_add_diffusion(o, a);
    cli_options_add_machine(o, a);
}

void cli_options_add_passage(cli_options *o, cli_request_args *a)
{
    const cli_option rows[] = {
        {0, "passage", NULL, NULL, NULL, NULL},
        {'n', "max-tokens", "N", "longest passage (4096)", cli_set_int, &a->max_tokens},
    };
    cli_options_add_model(o, a);
    ADD(o, rows);
    add_ends(o, a);
    cli_options_add_draws(o, a);
    cli_options_add_diffusion(o, a);
    cli_options_add_machine(o, a);
}

/* ---- what they come to ---- */

bool cli_request_check(const char *command, cli_request_args *a, int *code)
{
    *code = EXIT_USAGE;
    if (!dg_kv_type_named(&a->engine.kv_type, a->kv_type)) {
        fprintf(stderr, "dgemma %s: --kv-type is " DG_KV_TYPES "\n", command);
        return false;
    }
    *code = EXIT_FAILED;
    a->engine.adapters = a->lora.list;
    a->engine.n_adapters = a->lora.n;
    return a->quiet ? cli_model_quietly(&a->engine.model_path)
                    : cli_model_or_default(&a->engine.model_path);
}

void cli_request_apply(const cli_request_args *a, dgemma_request_options *o)
{
    o->seed = a->seed;
    o->thinking = a->think;
    o->thinking_budget = a->think_budget;
    o->stop = a->stop;
    o->n_stop = a->n_stop;
    o->image_tokens = a->image_tokens;
    o->adapters = a->lora.use;
    o->n_adapters = a->lora.n;
    if (a->max_tokens >= 0)
        o->max_tokens = a->max_tokens;
    if (a->steps >= 0)
        o->max_denoise_steps = a->steps;
    if (a->stability >= 0)
        o->stability_threshold = a->stability;
    if (a->canvas >= 0)
        o->canvas_length = a->canvas;
    if (!isnan(a->t_min))
        o->t_min = a->t_min;
    if (!isnan(a->t_max))
        o->t_max = a->t_max;
    if (!isnan(a->entropy_bound))
        o->entropy_bound = a->entropy_bound;
    if (!isnan(a->confidence))
        o->confidence_threshold = a->confidence;
    if (!isnan(a->temperature))
        o->temperature = a->temperature;
    if (!isnan(a->top_p))
        o->top_p = a->top_p;
    o->top_k = a->top_k;
    o->min_p = a->min_p;
    o->settled_steps = a->settled;
}

/* dgemma: runs DiffusionGemma, a block-diffusion language model.
 *
 * Two handles carry everything: an engine is a loaded model, a request is one piece of work on it.
 * Functions that can fail return a dgemma_status and, when the caller passes a dgemma_error, say in
 * it what was wrong. The library never prints, never exits and reads no environment variable. */
#ifndef DGEMMA_H
#define DGEMMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DGEMMA_VERSION "0.2.0"

#if defined(DGEMMA_BUILD) && defined(__GNUC__)
#define DGEMMA_API __attribute__((visibility("default")))
#else
#define DGEMMA_API
#endif

/* ---- errors ---- */

typedef enum dgemma_status {
    DGEMMA_OK = 0,
    DGEMMA_E_ARG = -1,         /* the caller asked for something that makes no sense */
    DGEMMA_E_NOMEM = -2,       /* memory is out */
    DGEMMA_E_IO = -3,          /* a file is missing or cannot be read */
    DGEMMA_E_FORMAT = -4,      /* a file's content is broken or contradicts itself */
    DGEMMA_E_UNSUPPORTED = -5, /* well-formed, but not something this build can do */
    DGEMMA_E_LIMIT = -6,       /* a stated limit was exceeded */
    DGEMMA_E_CANCELLED = -7,   /* a callback asked to stop */
    DGEMMA_E_INTERNAL = -8,    /* a bug or a broken device */
    DGEMMA_E_CONTEXT = -9,     /* the prompt leaves no room for an answer in the context */
    DGEMMA_E_BUSY = -10        /* too much is waiting already; the same may be possible later */
} dgemma_status;

typedef struct dgemma_error {
    dgemma_status status;
    char msg[512];              /* one line, UTF-8, no newline at its end */
    size_t n_context, n_prompt; /* DGEMMA_E_CONTEXT: tokens; of the prompt at least so many */
} dgemma_error;

/* "0.2.0"; static. */
DGEMMA_API const char *dgemma_version(void);

/* ---- the engine ----
 *
 * A loaded model, the memory to run it, and one thread that does. Requests come to it through a
 * queue, from any thread. Several engines in one process do not know of each other. */

typedef struct dgemma_engine dgemma_engine;

typedef enum dgemma_kv_type {
    DGEMMA_KV_BF16,
    DGEMMA_KV_F32,
    DGEMMA_KV_Q8_0, /* a byte a value, and a half for 32 of them */
    DGEMMA_KV_FP8   /* a byte a value, E4M3, and a power of two for each head of a token */
} dgemma_kv_type;

/* How far loading is: `fraction` from 0 to 1. Called on the thread that opens the engine; return
 * false to give up (DGEMMA_E_CANCELLED). */
typedef bool dgemma_progress_fn(void *user, double fraction);

/* How the tokens of a picture see each other while the prompt is encoded, in models that ask for
 * more than causal order. Implementations differ; the default is what transformers' generate()
 * does. */
typedef enum dgemma_image_attention {
    DGEMMA_IMAGES_WHOLE,     /* both ways inside a picture, in every layer and beyond the window */
    DGEMMA_IMAGES_IN_WINDOW, /* both ways in sliding layers, inside the window, as Gemma 4 does */
    DGEMMA_IMAGES_CAUSAL     /* like text, as vLLM does */
} dgemma_image_attention;

/* A file with changes of low rank (LoRA) to the model's matrices: a folder as PEFT writes it, or a
 * GGUF file as llama.cpp reads it (docs/adapters.md). */
typedef struct dgemma_adapter {
    const char *name; /* what requests call it; NULL: the last part of the path, without .gguf */
    const char *path;
    float scale; /* its changes are multiplied by this; 1: as the file says */
} dgemma_adapter;

enum { DGEMMA_MAX_ADAPTERS = 64, DGEMMA_MAX_ADAPTER_NAME = 128 };

typedef struct dgemma_engine_options {
    const char
        *model_path;    /* a GGUF file, a Hugging Face checkpoint folder, or a hub cache folder */
    int n_threads;      /* 0: one for each processor this process may use */
    int context_length; /* tokens a request may have, prompt and answer; 0, or more than that: what
                           the model allows */
    dgemma_kv_type kv_type; /* how keys and values are kept */
    const char *device;     /* "cpu", "cuda", "cuda:N"; NULL or "auto": a GPU where there is one */
    const char *cpu; /* instruction sets to use, "neon", "avx2" or "ref"; NULL: the best there is */
    const char *profile; /* on the CPU, products on quantised weights: "integer" on the weights' own
                            whole numbers, with activations of 8 bits; "float" on weights widened to
                            float, several times slower. NULL: "integer" */
    const char
        *weights; /* on a GPU, weights of F32, F16 or BF16 are made narrower when they are loaded:
                     experts' "fp8" (E4M3) or "int4" (groups of 64), and with either the dense
                     ones of a layer but down E4M3 on compute capability 9.0. NULL: as stored */
    const char *chat_template; /* "a" or "b": the revision of the model's template to render
                                  conversations with;       NULL: the one the checkpoint has */
    const char *mmproj; /* the GGUF file of a vision tower; NULL: mmproj*.gguf beside the model, if
                           there is one that fits it */
    const dgemma_adapter *adapters; /* to load; requests choose among them, by their place here */
    size_t n_adapters;
    dgemma_image_attention image_attention;
    int max_running;  /* requests that run together; others wait. 0: 16 */
    int queue_length; /* requests that may wait. 0: 1024 */
    size_t kv_bytes;  /* memory for keys and values, of running requests and of the prefix cache;
                         0: what max_running requests of 8,192 tokens need, or one that fills the
                         context if that is more; on a GPU at most what is free, and all that
                         gpu_bytes leaves where that is given */
    size_t gpu_bytes; /* memory of a GPU for weights, work, keys and values together; 0: no bound */
    size_t picture_bytes; /* memory for the pictures of requests that wait or run, as they are
                             scaled for the model: what does not fit is refused. As much again for
                             what the model sees in them. 0: 1 GiB */
    bool no_prefix_cache; /* forget the keys and values of a request when it ends */
    dgemma_progress_fn *on_progress; /* or NULL */
    void *progress_user;
} dgemma_engine_options;

DGEMMA_API dgemma_engine_options dgemma_engine_defaults(void);

/* Loads the model; *out belongs to the caller (dgemma_engine_close). Nothing in *opt is kept.
 * DGEMMA_E_IO: a file cannot be read; DGEMMA_E_FORMAT: it is broken, or contradicts another;
 * DGEMMA_E_UNSUPPORTED: it is fine but beyond this version; DGEMMA_E_NOMEM. */
DGEMMA_API dgemma_status dgemma_engine_open(dgemma_engine **out, const dgemma_engine_options *opt,
                                            dgemma_error *err);

/* Ends what is running and waiting (each gets its END event), then frees the engine. Not while
 * another thread is in a call with it; requests stay valid until they are freed. NULL is fine. */
DGEMMA_API void dgemma_engine_close(dgemma_engine *engine);

/* Weights are read where they lie, in the model's files. A file that is cut short meanwhile is a
 * SIGBUS for whoever reads what is gone, and the end of the process unless it has a handler. This
 * is what to call in one, with si_addr. True: the address was in a file of this engine; it reads as
 * zeros from there on, and the handler can return. What runs fails with DGEMMA_E_IO, which names
 * the file, as do all requests to come. False: it was none of this engine's. The engine must not be
 * closed meanwhile. */
DGEMMA_API bool dgemma_engine_patch(dgemma_engine *engine, const void *address);

/* DGEMMA_E_IO: a file of the model was cut short; DGEMMA_E_INTERNAL: the GPU is lost. Nothing can
 * run any more. Any thread. */
DGEMMA_API dgemma_status dgemma_engine_check(const dgemma_engine *engine, dgemma_error *err);

typedef struct dgemma_model_info {
    int n_vocab, n_layer, n_embd, n_expert, n_expert_used;
    int context_length, canvas_length;
    const char *format; /* of its files: "gguf", "safetensors" */
    bool has_tokenizer;
    bool has_vision;            /* it can look at pictures */
    const char *vision_ignored; /* what is wrong with the mmproj file beside the model, which is not
                                   used for that; lives as long as the engine. NULL: nothing */
    bool has_chat_template;     /* the tokenizer knows the turn markers */
    const char *chat_template;  /* which revision conversations are rendered with: "a", "b" */
    bool foreign_template; /* the checkpoint brings a template that is neither: "a" is used unless
                              told otherwise */
    const char *backend;   /* "neon", "i8mm", "bf16", "avx2", "vnni", "amx", "ref" */
    const char
        *numerics; /* "integer-2", "integer-bytes", "portable", "integer-2-reference",
                      "reference"; "-bfmmla" or "-amx" behind them where attention or
                      pictures use a processor's own products: machines of one profile give the same
                      text for the same seed, to the bit. On a GPU "cuda", or "cuda-fp8" and
                      "cuda-int4" with narrower weights: GPUs of one kind do */
    int n_threads;
    const char *gpu_address; /* of the GPU that computes, on the PCI bus: "0000:1b:00.0"; lives as
                                long as the engine. NULL: the CPU computes */

    /* memory */
    size_t weight_bytes; /* mapped from the file, shared with other processes; of a quantised folder
                            made in memory of its own */
    size_t work_bytes;   /* allocated for passes, whatever the requests */
    size_t request_bytes; /* for each running request, beside its keys and values */
    size_t kv_bytes_full; /* keys and values of a request that fills the context */
    size_t kv_bytes;      /* room for keys and values of all requests and of the prefix cache */
} dgemma_model_info;

/* Any thread. The strings are static. */
DGEMMA_API void dgemma_engine_info(const dgemma_engine *engine, dgemma_model_info *info);

/* The same before loading: reads the headers and the config, allocates nothing large. */
DGEMMA_API dgemma_status dgemma_model_estimate(dgemma_model_info *info,
                                               const dgemma_engine_options *opt, dgemma_error *err);

/* The adapters that were loaded. Any thread; the strings live as long as the engine. */
typedef struct dgemma_adapter_info {
    const char *name, *path;
    float scale;
    int rank; /* the largest */
    size_t bytes;
    bool prompt; /* it changes how prompts are read, not canvases alone */
} dgemma_adapter_info;
DGEMMA_API size_t dgemma_adapter_count(const dgemma_engine *engine);
DGEMMA_API void dgemma_adapter_describe(const dgemma_engine *engine, size_t adapter,
                                        dgemma_adapter_info *info);
/* The place of one by its name; -1: there is none. */
DGEMMA_API int dgemma_adapter_find(const dgemma_engine *engine, const char *name);

/* What the engine has done since it was opened and what it is doing; any thread. */
typedef struct dgemma_engine_counters {
    int n_running, n_waiting;
    size_t kv_bytes_used, kv_bytes_cached, kv_bytes_total; /* used: by running requests */
    size_t picture_bytes_used, picture_bytes_total;        /* pictures of prompts */
    uint64_t n_requests, n_ended[6];                       /* ended: by dgemma_end */
    uint64_t n_prompt_tokens, n_prompt_cached;             /* cached: taken from the prefix cache */
    uint64_t n_output_tokens, n_blocks, n_converged, n_steps; /* steps: of all requests' blocks */
    uint64_t n_passes;    /* of the model, each over all running requests */
    uint64_t n_evictions; /* prefixes forgotten to make room */
    double busy_seconds;
    double device_seconds; /* of those, in which a GPU computed; 0: the CPU does */
    /* What busy_seconds is made of: turns of the engine, a pass with what goes before it, by how
     * long they took: [0] up to 1 ms, [i] up to 2^i ms, the last: longer. */
    uint64_t n_turns[17];
} dgemma_engine_counters;
DGEMMA_API void dgemma_engine_count(const dgemma_engine *engine, dgemma_engine_counters *counters);

/* What was saved of a conversation, or restored. */
typedef struct dgemma_saved_prefix {
    int n_tokens;   /* of its longest prefix */
    uint64_t bytes; /* of the file */
} dgemma_saved_prefix;

/* Saves keys and values that the prefix cache holds, for a later process: the conversation that was
 * used last, or with `which` the one used before that, and so on, of those whose requests had this
 * cache_salt (NULL: none). Restored, the same prompt and whatever begins like it need not be
 * encoded again. A file is replaced, and never seen half written. The file is refused by other
 * models and other numerics: DGEMMA_E_UNSUPPORTED; where it is damaged: DGEMMA_E_FORMAT.
 * Conversations with pictures, and those
 * whose prompt an adapter read, are not saved: DGEMMA_E_ARG, as where none is kept. Any thread but
 * one of the engine's callbacks; passes wait meanwhile. */
DGEMMA_API dgemma_status dgemma_prefix_save(dgemma_engine *engine, const char *path, int which,
                                            const char *cache_salt, dgemma_saved_prefix *saved,
                                            dgemma_error *err);
DGEMMA_API dgemma_status dgemma_prefix_restore(dgemma_engine *engine, const char *path,
                                               const char *cache_salt, dgemma_saved_prefix *saved,
                                               dgemma_error *err);

/* ---- tokens ----  Any thread. */

/* Token ids of a text into ids[0 … cap); *n is how many there are, and DGEMMA_E_LIMIT says that
 * they did not all fit. With `markers`, special tokens written in the text ("<|turn>") count as
 * such: not for text of unknown origin. */
DGEMMA_API dgemma_status dgemma_tokenize(const dgemma_engine *engine, const char *text, size_t len,
                                         bool markers, int32_t *ids, size_t cap, size_t *n,
                                         dgemma_error *err);

/* Text of token ids, NUL-terminated, in memory that dgemma_free gives back. Special tokens are
 * printed. */
DGEMMA_API dgemma_status dgemma_detokenize(const dgemma_engine *engine, const int32_t *ids,
                                           size_t n, char **text, size_t *len, dgemma_error *err);
DGEMMA_API void dgemma_free(void *p);

/* ---- constraints ----
 *
 * A language that text is held to: a JSON Schema, a regular expression, a list of choices or a
 * grammar (docs/constraints.md). It never changes once it is made, and any number of requests may
 * be held to it at a time. */

typedef struct dgemma_constraint dgemma_constraint;

typedef enum dgemma_tool_choice {
    DGEMMA_TOOLS_AUTO,     /* the model decides */
    DGEMMA_TOOLS_NONE,     /* tools are not shown to it */
    DGEMMA_TOOLS_REQUIRED, /* the answer begins with a call: its opening is put into the model's
                              mouth, so it does not think first, whatever `thinking` says */
    DGEMMA_TOOLS_NAMED     /* likewise, with a call of tool_name, which must be declared */
} dgemma_tool_choice;

typedef enum dgemma_constraint_kind {
    DGEMMA_CONSTRAINT_JSON_SCHEMA,
    DGEMMA_CONSTRAINT_JSON_OBJECT, /* any object; needs no text */
    DGEMMA_CONSTRAINT_REGEX,       /* which the whole text matches */
    DGEMMA_CONSTRAINT_CHOICE,      /* one of `choices` */
    DGEMMA_CONSTRAINT_GRAMMAR,     /* GBNF */
    DGEMMA_CONSTRAINT_TOOLS        /* turns with calls of tools, in the model's own syntax */
} dgemma_constraint_kind;

typedef struct dgemma_constraint_options {
    dgemma_constraint_kind kind;
    const char *text; /* the schema, the expression or the grammar; borrowed for the call */
    size_t text_len;
    const char *const *choices;
    size_t n_choices;
    bool compact; /* JSON without white space; otherwise on one line, or a line for each member */
    bool lenient; /* keywords of a schema that are not supported are left out, not refused */

    /* TOOLS: `text` is a JSON array as in dgemma_request_options.tools, `choices` the names of
     * those that may be called, none: all. Arguments are held to a tool's parameters as far as
     * schemas can be; one that is "strict" is refused where they cannot. */
    dgemma_tool_choice tool_choice; /* NAMED is REQUIRED: `choices` says which */
    bool single_tool_call;
    /* What a turn without calls is held to, which then has no text in front of calls; no grammar.
     * NULL: any text. */
    const struct dgemma_constraint_options *answer;
} dgemma_constraint_options;

/* Any thread. *out belongs to the caller (dgemma_constraint_free), who may free it at any time:
 * requests hold what they need. DGEMMA_E_ARG: malformed, or nothing could
 * satisfy it; DGEMMA_E_UNSUPPORTED: it asks for something that is not supported, which the message
 * names, with its JSON pointer in a schema; DGEMMA_E_LIMIT: it is too complex. */
DGEMMA_API dgemma_status dgemma_constraint_create(dgemma_constraint **out,
                                                  const dgemma_constraint_options *opt,
                                                  dgemma_error *err);
DGEMMA_API void dgemma_constraint_free(dgemma_constraint *constraint); /* NULL is fine */

/* One more owner, each of whom frees it; returns it. */
DGEMMA_API dgemma_constraint *dgemma_constraint_hold(dgemma_constraint *constraint);

/* What was left out of a lenient schema, a line each: 'KEYWORD at POINTER'. Lives as long as the
 * constraint. */
DGEMMA_API const char *dgemma_constraint_ignored(const dgemma_constraint *constraint);

/* ---- requests ---- */

/* A step of the diffusion, for a callback that may take part in it. Arrays are n long. */
typedef struct dgemma_step {
    int block, step, n;
    bool finished;   /* the block ends with this step: its text is `argmax` */
    int32_t *canvas; /* what the next step will look at; may be changed, to ids in the vocabulary.
                        What has settled (settled_steps) stays all the same */
    const int32_t *argmax; /* the most likely token at each position */
    const float *entropy;  /* uncertainty at each position, in nats */
    const uint8_t
        *accepted; /* 1 where the canvas holds this step's draw, 0 where it is noise again */
} dgemma_step;

/* Runs on the engine's thread, between two steps: everything waits for it. Return false to end the
 * request; it is not called after dgemma_request_free. */
typedef bool dgemma_step_fn(void *user, const dgemma_step *step);

/* A picture or a video, from a file or from memory. Pictures: PNG, JPEG, WebP, GIF (first frame),
 * told apart by content. Videos: what FFmpeg's libraries read, where the library was built with
 * them. */
typedef struct dgemma_media {
    const char *path; /* or */
    const void *data;
    size_t size;
    bool video;
    int max_soft_tokens; /* of a picture: what it may cost in tokens; 0: the request's image_tokens
                          */
} dgemma_media;

typedef struct dgemma_logit_bias {
    int32_t token;
    float bias; /* -1000 to 1000 */
} dgemma_logit_bias;

enum { DGEMMA_MAX_ADAPTER_USES = 8 };
enum { DGEMMA_MAX_CACHE_SALT = 256, DGEMMA_MAX_READ_IDS = 512, DGEMMA_MAX_STOP_TOKENS = 16 };

/* A loaded adapter for a request, and how much of it: the scale that it was loaded with is
 * multiplied by this one. */
typedef struct dgemma_adapter_use {
    int adapter;
    float scale;
} dgemma_adapter_use;

/* A canvas that is looked at once and thrown away: how likely is each of some tokens at each of its
 * positions, beside the words that are given there? One pass says it. */
typedef struct dgemma_read {
    const int32_t *tokens; /* [n_tokens] what the canvas begins as; -1: noise, by the seed */
    const uint8_t *pinned; /* [n_tokens] 1: stays in every step; NULL: all that is given does */
    size_t n_tokens;       /* 1 to the model's canvas_length */
    const int32_t *ids;    /* [n_ids] tokens whose log-probabilities are wanted */
    size_t n_ids;
    bool among; /* as if there were no others: probabilities, the most likely token, entropy and
                   draws are those among the ids, of which there must be one, in every step;
                   temperatures but 0 and filters do not change these draws */
} dgemma_read;

typedef struct dgemma_request_options {
    /* The prompt: one of these five. A chat prompt is one message of a user; `messages` a
     * conversation as JSON, an array in OpenAI's form; a raw prompt is taken as it stands, markers
     * in it and all. */
    const char *chat_prompt;
    const char *messages;
    const char *raw_prompt;
    const int32_t *tokens;
    size_t n_tokens;
    struct dgemma_prompt *prompt; /* made before; what it was made of is not looked at again:
                                     media, image_tokens, the fields for chats, cache_salt */

    /* Pictures and videos for the prompt, in the order of their places. In a chat prompt <|image|>
     * and <|video|> say where; without them they come first. In messages a part {"type": "image"}
     * without an address takes the next one (one with a data: URL brings its own); in a raw prompt
     * and in tokens each placeholder token does. */
    const dgemma_media *media;
    size_t n_media;
    int image_tokens; /* soft tokens a picture may cost, at most 1120; the model was trained with
                         70, 140, 280, 560 and 1120; 0: its own, 280 */

    /* for chat_prompt and messages */
    const char *system; /* put in front as a system message; or NULL */
    const char *tools;  /* JSON array in OpenAI's form; or NULL */
    dgemma_tool_choice tool_choice;
    const char *tool_name;     /* for DGEMMA_TOOLS_NAMED */
    bool single_tool_call;     /* the answer ends after its first call */
    const char *answer_prefix; /* what the answer's text is to begin with: part of the prompt, not
                                  sent again; markers in it are text, and the model does not think
                                  first. Or NULL */
    bool thinking;             /* let the model think before it answers */
    int thinking_budget; /* tokens of thought before it must answer; -1: as many as leave room for
                            the answer */

    /* Who may profit from whom: what a request leaves in the engine's caches, keys and values of
     * its prompt and features of its pictures, is found by requests with an equal salt alone, so
     * that nobody can tell from times or counts what others have asked. Up to DGEMMA_MAX_CACHE_SALT
     * bytes. NULL: the same as "", which those without one share. */
    const char *cache_salt;

    /* Adapters for this request, each once, at most DGEMMA_MAX_ADAPTER_USES; none: the model as it
     * is. Requests with different ones run together. */
    const dgemma_adapter_use *adapters;
    size_t n_adapters;

    /* What the answer is held to, or NULL. It begins where the answer does: behind the thought, if
     * the model thinks (or leaves an empty one), else right behind the prompt. Thoughts are free.
     * The model ends its turn only where a text of the language is complete, and can say nothing
     * behind it. Where max_tokens or the context come to their end, what is open is closed in time;
     * DGEMMA_E_ARG: they are too few for any text of the language, and the message says how many
     * tokens it needs. A stop string or a cancel may cut the text all the same. Special tokens are
     * part of it only where the language names them. Goes with no answer_prefix and with no
     * tool_choice that opens a call. */
    dgemma_constraint *constraint;

    /* The answer fills a gap in a text: `suffix` is what stands behind it, answer_prefix what
     * stands before. As much of the suffix as fits is pinned behind the gap, in the same canvas, so
     * that the model sees both sides; the answer is the gap alone, and is at most max_tokens and
     * five eighths of a canvas long. Its length is found by trying some (docs/canvas.md), unless
     * keep_length says that it is the passage's. The prompt may be left out: the model is then
     * asked in our words to write what is missing, or the passage anew, as `instruction` says.
     * Goes with no constraint, no thinking, no tools, and with no canvas. */
    const char *suffix;  /* may be empty: the text ends behind the gap. NULL: no gap */
    const char *passage; /* what stood in the gap, for an instruction and keep_length; or NULL */
    const char *instruction; /* or NULL; goes with no prompt but ours */
    bool keep_length;        /* the gap starts from the passage, at `strength` */

    /* What the canvases start with in place of noise, token by token from the answer's first on:
     * ids, or -1 where nothing is known. Where `pinned` is not 0 the token stays in every canvas
     * and in the answer, is never renoised and costs no uncertainty (NULL: nowhere). What is not
     * pinned becomes noise with the probability `strength`, and with a canvas that is known
     * throughout that part of the steps is made: at 1 all of it is noise, at 0 nothing changes.
     * Goes with no constraint; with n_logprobs only where nothing is pinned. */
    const int32_t *canvas;
    const uint8_t *pinned;
    size_t n_canvas;
    float strength; /* 0 to 1 */

    uint64_t seed;
    int max_tokens;          /* of the answer, thoughts included */
    const char *const *stop; /* strings that end the answer where they appear in its text */
    size_t n_stop;
    const int32_t *stop_tokens; /* likewise tokens, in thoughts too, beside the model's own; at most
                                   DGEMMA_MAX_STOP_TOKENS, and not with a constraint */
    size_t n_stop_tokens;

    /* The draw of each step. Entropy, acceptance, the end of a block and self-conditioning keep the
     * schedule; the draw alone is made from the logits divided by temperature too, and from the
     * tokens that the filters leave, in this order: the top_k most likely ones; of those as few as
     * have top_p of their probability together; of those the ones at least min_p times as likely as
     * the most likely. Tokens whose probabilities differ by less than 0.8 % count as equal, the
     * lower id first; the most likely token always stays. What is sent in the end is the most
     * likely token at each position: draws steer the way there. */
    float temperature; /* 1: the schedule's own; 0: the most likely token; else 1e-6 to 100 */
    int top_k;         /* 0: all */
    float top_p;       /* 1: all; above 0 */
    float min_p;       /* 0: all */
    const dgemma_logit_bias *logit_bias; /* added to logits before anything else: to the model they
                                            are its own. Up to 1,024, one for a token */
    size_t n_logit_bias;
    int n_logprobs; /* most likely tokens to report with each token of a BLOCK event, or of a READ
                       that asks for no ids, itself included, up to 20; 0: only its own
                       log-probability; -1: nothing */

    /* Send the beginning of a block as soon as it has settled, and pin it: it stays in every canvas
     * that follows, nothing is taken back. The block ends once all that counts of it has settled,
     * up to the end of the turn. An approximation: later steps cannot mend what was sent. 0: off;
     * else for how many steps in a row each of its tokens must have been the most likely one, with
     * an entropy below confidence_threshold. */
    int settled_steps;

    /* diffusion; the defaults are the model's own */
    int max_denoise_steps;
    float t_min, t_max; /* at least 1e-6 */
    float entropy_bound;
    int stability_threshold;
    float confidence_threshold;
    int canvas_length;

    /* Read this canvas behind the prompt instead of writing an answer: a READ event after
     * max_denoise_steps steps, 1 is what it is made for. Every step has temperature 1. Goes with no
     * constraint. Or NULL */
    const dgemma_read *read;

    bool drafts; /* send a DRAFT event for each step */
    dgemma_step_fn *on_step;
    void *step_user;
} dgemma_request_options;

/* What the model asks for, seed 0, thinking off, answers of up to 4,096 tokens, strength 1, and
 * draws as the schedule has them. */
DGEMMA_API dgemma_request_options dgemma_request_defaults(const dgemma_engine *engine);

typedef enum dgemma_event_kind {
    DGEMMA_EVENT_PROMPT,    /* some of the prompt is encoded: n_done of n_total tokens */
    DGEMMA_EVENT_DRAFT,     /* a step was made: tokens (most likely ones), entropy, accepted,
                               mean_entropy */
    DGEMMA_EVENT_BLOCK,     /* a block is finished: its tokens, up to the end of the turn or to the
                               one that completes a stop string; what they say comes next, unless
                               it was sent before (settled_steps) */
    DGEMMA_EVENT_THINKING,  /* a piece of thought: text */
    DGEMMA_EVENT_TEXT,      /* a piece of the answer: text */
    DGEMMA_EVENT_TOOL_CALL, /* tool_name, and the arguments as a JSON object in text */
    DGEMMA_EVENT_READ,      /* a canvas was read: tokens (most likely ones), entropy, logprobs as in
                               BLOCK; and [n_tokens, n_top] in top_tokens the ids that were asked for,
                               in that order, with their log-probabilities in top_logprobs; where
                               none were, the most likely tokens as in BLOCK */
    DGEMMA_EVENT_END /* the last one: stats, and status with its message in text when it failed */
} dgemma_event_kind;

typedef enum dgemma_end {
    DGEMMA_END_STOP,   /* the model ended its turn or left a block empty, or a stop string or one of
                          stop_tokens came */
    DGEMMA_END_LENGTH, /* max_tokens are there */
    DGEMMA_END_CONTEXT,    /* the context is full */
    DGEMMA_END_TOOL_CALLS, /* the model waits for the results of its tool calls */
    DGEMMA_END_CANCELLED,  /* somebody said so */
    DGEMMA_END_FAILED      /* see the status */
} dgemma_end;

typedef struct dgemma_stats {
    dgemma_end end;
    int stop_string;     /* which of `stop` ended the answer, from 1; 0: none did */
    int n_prompt_cached; /* tokens of the prompt whose keys and values were there already */
    int n_prompt, n_output, n_thinking; /* tokens; thinking: of those in the output */
    int n_pictures,
        n_pictures_encoded; /* encoded: those that were not known from an earlier request */
    int n_blocks, n_converged, n_steps; /* converged: blocks that settled before their last step */
    int n_tries;      /* lengths of a gap that were tried; their steps count among n_steps */
    float agreement;  /* of the tokens pinned in the last canvas, for how many the model would have
                         said the same, 0 to 1; behind a gap of those in the text. 1: none was */
    float resistance; /* to a constraint: nats for each position by which the model would have
                         written something else, the mean of all steps; 0: it would not have */
    uint64_t n_positions;   /* of the canvases in all steps */
    double queue_seconds;   /* waiting for the engine */
    double prompt_seconds;  /* passes that encoded the prompt; one that made a step too counts here
                               and there, by rows */
    double denoise_seconds; /* passes with a step */
    double first_text_seconds; /* from the start of its work to the first THINKING, TEXT or
                                  TOOL_CALL */
    size_t kv_bytes;           /* keys and values at the end */
} dgemma_stats;

/* What an event points to lives until the next call for this request. Text is UTF-8,
 * NUL-terminated, and never ends in the middle of a character. */
typedef struct dgemma_event {
    dgemma_event_kind kind;
    int n_done, n_total; /* PROMPT */
    int block, step;     /* DRAFT, BLOCK: from 0 */
    const int32_t *tokens;
    size_t n_tokens;
    bool stop_token; /* BLOCK: one of stop_tokens ended the answer; it stands behind the tokens, at
                        [n_tokens], with what is told of each, and is none of them */
    const float *entropy;
    const uint8_t *accepted;
    const uint8_t *pinned; /* DRAFT: 1 where a token was given and stays; NULL: nowhere */
    int n_gap;   /* DRAFT: positions of the gap, at the canvas's beginning; 0: there is none */
    bool trying; /* DRAFT: to see whether the gap has that length */
    float mean_entropy;
    float resistance; /* DRAFT: to a constraint, in this step, as in dgemma_stats */
    bool converged;   /* BLOCK: it settled before its last step */
    int n_canvas;     /* BLOCK: positions of its canvas */
    double seconds;   /* BLOCK: its part of denoise_seconds */
    /* BLOCK, when n_logprobs was asked for: log-probability of each token at the step that ended
     * the block (or settled it, where that was earlier), at that step's own temperature, without
     * the draw's temperature and filters; and [n_tokens, n_top] the most likely tokens there, most
     * likely first, equal ones by id. `entropy` is there too, of the same step. */
    const float *logprobs;
    const int32_t *top_tokens;
    const float *top_logprobs;
    int n_top;
    const char *text;
    size_t text_len;
    bool broken_call; /* TEXT: it was to be a call, and cannot be read as one */
    const char *tool_name;
    int tool_index; /* from 0 */
    dgemma_status status;
    dgemma_stats stats;
} dgemma_event;

/* One piece of work. Made by submit, which returns at once; events are then taken one by one until
 * END. */
typedef struct dgemma_request dgemma_request;

/* Any thread. Checks the options and turns the prompt into tokens on the calling thread; nothing in
 * *opt is kept but on_step and step_user. *out belongs to the caller (dgemma_request_free).
 * DGEMMA_E_ARG: an option makes no sense; DGEMMA_E_CONTEXT: the prompt does not fit, and the
 * message says how long the context is and how long the prompt, as far as it was read;
 * DGEMMA_E_BUSY: too many requests are waiting; DGEMMA_E_LIMIT: this one could never have the
 * memory it may need. */
DGEMMA_API dgemma_status dgemma_request_submit(dgemma_request **out, dgemma_engine *engine,
                                               const dgemma_request_options *opt,
                                               dgemma_error *err);

/* A prompt that many requests share: rendered, tokenised, its pictures read and scaled once. Any
 * thread; nothing in *opt is kept, and of it only what makes the prompt counts, but all of it is
 * checked. *out belongs to the caller (dgemma_prompt_free), who may free it at any time: requests
 * hold what they need. DGEMMA_E_CONTEXT: the context has no room for it; DGEMMA_E_LIMIT,
 * DGEMMA_E_NOMEM: its pictures take more memory than there is for pictures, at all or now. */
typedef struct dgemma_prompt dgemma_prompt;
DGEMMA_API dgemma_status dgemma_prompt_create(dgemma_prompt **out, dgemma_engine *engine,
                                              const dgemma_request_options *opt, dgemma_error *err);
/* A prompt that goes on with further tokens, in *out; `prompt` stays as it is, and may be freed.
 * DGEMMA_E_CONTEXT: the context has no room for them. */
DGEMMA_API dgemma_status dgemma_prompt_extend(dgemma_prompt **out, dgemma_engine *engine,
                                              dgemma_prompt *prompt, const int32_t *tokens,
                                              size_t n, dgemma_error *err);
DGEMMA_API size_t dgemma_prompt_length(const dgemma_prompt *prompt); /* tokens, with pictures */
DGEMMA_API void dgemma_prompt_free(dgemma_prompt *prompt);           /* NULL is fine */

/* How many tokens the prompt of these options has, pictures included; runs nothing. Any thread.
 * DGEMMA_E_CONTEXT: more than the model has room for. */
DGEMMA_API dgemma_status dgemma_prompt_count(dgemma_engine *engine,
                                             const dgemma_request_options *opt, size_t *n,
                                             dgemma_error *err);

/* The next event, waiting up to `seconds` (negative: for ever). False: none came in that time, or
 * END was delivered before. One thread at a time for one request. A reader who is slow holds nobody
 * up; of the drafts only the last 256 are kept. */
DGEMMA_API bool dgemma_request_wait(dgemma_request *request, dgemma_event *event, double seconds);

/* Calls `fn` whenever an event is there to be taken, and once at once if one is already: on the
 * engine's thread, where it must only wake somebody up. It may be called without need. Set it
 * before the first wait, from the thread that waits. It runs with a lock of the request held: from
 * inside it neither wait nor notify nor free may be called for that request. And whoever calls one
 * of those must hold no lock that fn takes. */
typedef void dgemma_notify_fn(void *user);
DGEMMA_API void dgemma_request_notify(dgemma_request *request, dgemma_notify_fn *fn, void *user);

/* Any thread, also while another waits: the request ends after the step or the picture that is
 * being worked on, with an END event. */
DGEMMA_API void dgemma_request_cancel(dgemma_request *request);

/* Cancels what is not finished and gives the request back; not while another thread waits on it.
 * Once it has returned, neither on_step nor the function given to notify is called any more, and
 * none of them runs: it waits for one that does, so hold no lock that they take. The request's own
 * on_step may call it, and is then the last call. NULL is fine. */
DGEMMA_API void dgemma_request_free(dgemma_request *request);

/* Submits, and hands each event to on_event (NULL: nobody) on the calling thread until the end;
 * false from it cancels. A request that fails on its way returns its status. */
typedef bool dgemma_event_fn(void *user, const dgemma_event *event);
DGEMMA_API dgemma_status dgemma_generate(dgemma_engine *engine, const dgemma_request_options *opt,
                                         dgemma_event_fn *on_event, void *user, dgemma_stats *stats,
                                         dgemma_error *err);

/* ---- decisions ----
 *
 * Questions about a text or pictures whose answers are labels. The model is shown the questions and
 * a canvas in which everything but the labels is written already; one pass over it says how likely
 * each label is (docs/decisions.md). Exact, and the same whatever else the engine does. */

enum {
    DGEMMA_MAX_QUESTIONS = 256,
    DGEMMA_MAX_OPTIONS = 255, /* of a choice */
    DGEMMA_MAX_LEVELS = 10,   /* of a score */
    DGEMMA_MAX_SAMPLES = 32,
    DGEMMA_MAX_READS = 1024 /* of one decision: canvases, samples and orders */
};

typedef enum dgemma_question_kind {
    DGEMMA_QUESTION_YES_NO,
    DGEMMA_QUESTION_CHOICE, /* one of its options */
    DGEMMA_QUESTION_SCORE   /* a level, the lowest first, from 0 */
} dgemma_question_kind;

typedef struct dgemma_option {
    const char *name;        /* of YES_NO not looked at */
    const char *description; /* or NULL */
} dgemma_option;

typedef struct dgemma_question {
    dgemma_question_kind kind;
    const char *text;
    const dgemma_option *options; /* of YES_NO: what yes and what no mean; or none */
    size_t n_options;
} dgemma_question;

typedef struct dgemma_decide_options {
    /* What the questions are about: a text, perhaps empty, with pictures in front of it; or a
     * conversation as in dgemma_request_options, whose pictures are where it has them. */
    const char *state, *messages;
    const dgemma_media *media;
    size_t n_media;
    int image_tokens;
    const dgemma_question *questions;
    size_t n_questions;

    uint64_t seed; /* of the noise where labels stand */
    int samples;   /* reads with other noise, of which probabilities are averaged; 0: one, and
                      three more where the labels' entropy is above 0.1 */
    int orders;    /* average over so many orders of the options, each turned on by one */
    int steps;     /* of denoising before labels are read, 1 to 8; more than one is rarely better */
    int think;     /* tokens of thought in front of the reads, up to 4096; 0: none */
    bool independent;   /* each question has a prompt and a canvas of its own */
    double temperature; /* divides the labels' log-probabilities: above 1 for a model that is surer
                           than it should be */
    const char *cache_salt; /* as in dgemma_request_options, and the next two */
    const dgemma_adapter_use *adapters;
    size_t n_adapters;
} dgemma_decide_options;

/* One sample, one order, one step, no thought, temperature 1, seed 0. */
DGEMMA_API dgemma_decide_options dgemma_decide_defaults(void);

typedef struct dgemma_answer {
    const double *probability; /* [n_options] sums up to 1; of YES_NO: of yes, of no */
    size_t n_options;
    size_t best;       /* the likeliest, the first of equal ones */
    double score;      /* sum of i * probability[i] */
    double confidence; /* how far the likeliest is ahead of the next; 1: there is no other */
    double label_mass; /* what the labels had of all the model's probability, before the rest was
                          left out */
    double entropy;    /* of probability, in nats */
    double
        standard_error; /* of probability[best], over samples and orders; 0: there was one read */
    int n_reads;
} dgemma_answer;

typedef struct dgemma_decision dgemma_decision;

/* Decides; *out, with the answers, belongs to the caller (dgemma_decision_free). Any thread, which
 * waits. DGEMMA_E_ARG: a question that makes no sense; DGEMMA_E_CONTEXT, DGEMMA_E_BUSY,
 * DGEMMA_E_LIMIT: as for requests, or more reads than DGEMMA_MAX_READS; DGEMMA_E_UNSUPPORTED: the
 * model has no chat template, or too few labels of one token. */
DGEMMA_API dgemma_status dgemma_decide(dgemma_decision **out, dgemma_engine *engine,
                                       const dgemma_decide_options *opt, dgemma_error *err);

/* The same for who does not wait: start, then advance whenever `notify` (as for requests) is
 * called, until it says that all is done; its status then says whether there are answers. One
 * thread at a time. Nothing in *opt is kept. */
DGEMMA_API dgemma_status dgemma_decision_start(dgemma_decision **out, dgemma_engine *engine,
                                               const dgemma_decide_options *opt, dgemma_error *err);
DGEMMA_API void dgemma_decision_notify(dgemma_decision *d, dgemma_notify_fn *fn, void *user);
DGEMMA_API bool dgemma_decision_advance(dgemma_decision *d, dgemma_status *st, dgemma_error *err);
DGEMMA_API void dgemma_decision_free(dgemma_decision *d); /* ends what runs; NULL is fine */

/* Once it is done. Arrays and texts live as long as the decision. */
DGEMMA_API const dgemma_answer *dgemma_decision_answer(const dgemma_decision *d, size_t question);
DGEMMA_API const char *dgemma_decision_thought(const dgemma_decision *d); /* "": there was none */

/* Of all its requests: prompts counted once, output is thought, times added up. */
DGEMMA_API void dgemma_decision_stats(const dgemma_decision *d, dgemma_stats *stats);

#ifdef __cplusplus
}
#endif

#endif

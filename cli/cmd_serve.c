/* dgemma serve: a model behind HTTP, until a signal says otherwise. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/kv_type.h"
#include "cells.h"
#include "lora_args.h"
#include "server/server.h"

enum { MAX_WORDS = 64 /* as read_keys says */, MAX_FILE = 1 << 20 };

typedef struct words {
    const char *words[MAX_WORDS];
    size_t n;
} words;

typedef struct serve_args {
    dgemma_engine_options engine;
    dg_server_options server;
    dg_model_specs models;
    words keys, origins, image_hosts;
    cli_lora_args lora;
    const char *key_file, *tls_cert, *tls_key, *kv_type, *name, *models_path;
    int max_body_mb, state_mb, kv_mb, gpu_mb, timeout, receive, fetch, ping, drain, drain_delay,
        models_mb, models_idle;
    float decision_temperature;
    bool quiet, help;
    atomic_bool serving; /* signals are waited for: no load has to look out for them */
} serve_args;

/* ---- what goes in ---- */

static bool add_word(void *target, const char *text)
{
    words *w = target;
    if (w->n == MAX_WORDS || !*text)
        return false;
    w->words[w->n++] = text;
    return true;
}

/* A key on each line; lines that are empty or begin with # do not count. Returns what is wrong,
 * NULL: nothing. A space in a line is a mistake, mostly at its end, where nobody sees it: no client
 * could send such a key. */
static const char *read_keys(words *keys, char *text)
{
    char *rest;
    for (char *line = strtok_r(text, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        if (*line == '#')
            continue;
        for (const char *c = line; *c; c++)
            if (*c <= ' ' || *c > '~')
                return "has a key with a space or another character in it that no header can have";
        if (!add_word(keys, line))
            return "has more than 64 keys";
    }
    return NULL;
}

/* ---- running ---- */

/* Who reads the log may have stopped reading. A pipe that takes anything takes a line. */
static bool print_line(void *user, const char *line)
{
    char text[DG_LOG_LINE + 1];
    (void)user;
    struct pollfd err = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&err, 1, 0) == 0)
        return false;
    int n = snprintf(text, sizeof text, "%s\n", line);
    ssize_t written = write(STDERR_FILENO, text, (size_t)n);
    (void)written; /* one who has closed it wants no log */
    return true;
}

static void stop_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
}

/* Ctrl-C while the models are loaded that have to be there first. Later ones are asked for by
 * requests, which are answered before the server stops. */
static bool loading(void *args, double fraction)
{
    (void)fraction;
    const serve_args *a = args;
    sigset_t pending;
    sigpending(&pending);
    return atomic_load(&a->serving) ||
           (!sigismember(&pending, SIGTERM) && !sigismember(&pending, SIGINT));
}

/* Every connection is a file. */
static void allow_files(int n)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    rlim_t want = (rlim_t)n + 128;
    if (limit.rlim_cur >= want)
        return;
    limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Whether one of these comes within that time. A process that is stopped and goes on is woken up
 * too, and waits again. */
static bool is_told_within(const sigset_t *set, double seconds)
{
    double until = dg_clock_now() + seconds;
    int number;
    do {
        double left = until - dg_clock_now();
        left = left > 0 ? left : 0;
        struct timespec rest = {.tv_sec = (time_t)left,
                                .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
        number = sigtimedwait(set, NULL, &rest);
    } while (number < 0 && errno == EINTR);
    return number > 0;
}

/* Waits for a signal, then for the answers under way; a second signal ends them. */
static void serve_until_told(dg_server *server, const serve_args *a)
{
    sigset_t set;
    int number;
    stop_signals(&set);
    sigwait(&set, &number);
    print_line(NULL, "dgemma: stopping: answers under way are finished, a second signal ends them");
    cli_notify("STOPPING=1");
    dg_server_leave(server);
    bool hurry = a->drain_delay && is_told_within(&set, a->drain_delay);
    dg_server_drain(server);
    double until = dg_clock_now() + a->drain;
    while (!hurry && dg_clock_now() < until && !dg_server_wait_idle(server, 0.1))
        hurry = is_told_within(&set, 0);
    dg_server_stop(server);
}

static void warn_of_model(const serve_args *a, dgemma_engine *engine)
{
    dgemma_model_info info;
    dgemma_engine_info(engine, &info);
    cli_warn_of_model(&a->engine, &info);
}

/* The model is there: says where it can be asked, which it can from now on. */
static void announce(const serve_args *a, dg_server *server)
{
    bool six = strchr(a->server.host, ':') != NULL; /* an address, not a name */
    printf("listening on %s://%s%s%s:%d\n", a->server.tls_key ? "https" : "http", six ? "[" : "",
           a->server.host, six ? "]" : "", dg_server_port(server));
    fflush(stdout);
    cli_notify("READY=1");
}

/* The port is open while the model is loaded: who asks is told so, not left to wonder. */
static int run_server(serve_args *a)
{
    dg_server *server = NULL;
    dgemma_engine *engine = NULL;
    dgemma_error err = {0};
    cli_progress progress;
    dgemma_status st = dg_server_start(&server, NULL, &a->server, &err);
    if (st)
        return cli_fail(&err);
    if (!a->server.models) {
        a->engine.on_progress = loading;
        a->engine.progress_user = a;
        cli_progress_attach(&progress, &a->engine);
        st = dgemma_engine_open(&engine, &a->engine, &err);
        cli_progress_end(&progress);
        cli_guard_engine(engine);
    }
    if (!st)
        st = dg_server_attach(server, engine, &err);
    if (st) {
        dg_server_stop(server);
    } else {
        if (engine)
            warn_of_model(a, engine);
        atomic_store(&a->serving, true);
        announce(a, server);
        serve_until_told(server, a);
    }
    cli_guard_engine(NULL);
    dgemma_engine_close(engine);
    dg_server_free(server);
    return st ? cli_fail(&err) : EXIT_OK;
}

static void warn(const serve_args *a)
{
    bool local = !strncmp(a->server.host, "127.", 4) || !strcmp(a->server.host, "::1") ||
                 !strcmp(a->server.host, "localhost");
    if (!local && !a->server.n_key)
        fprintf(stderr,
                "dgemma: anybody who reaches %s may use this server; --api-key asks for "
                "a key\n",
                a->server.host);
    if (!local && a->server.n_key && !a->server.tls_key)
        fprintf(stderr, "dgemma: keys travel in the open; --tls-cert and --tls-key, or a proxy, "
                        "hide them\n");
}

/* A file that was named to protect the server and is empty must not leave it open. */
static bool files_say_something(serve_args *a, dg_buf *keys, const dg_buf *cert, const dg_buf *key)
{
    size_t n_given = a->keys.n;
    const char *empty = a->tls_cert && !cert->len ? a->tls_cert
                        : a->tls_key && !key->len ? a->tls_key
                                                  : NULL;
    const char *wrong = keys->len ? read_keys(&a->keys, keys->data) : NULL;
    if (empty)
        fprintf(stderr, "dgemma serve: %s is empty\n", empty);
    else if (wrong)
        fprintf(stderr, "dgemma serve: %s %s\n", a->key_file, wrong);
    else if (a->key_file && a->keys.n == n_given)
        fprintf(stderr, "dgemma serve: %s has no key in it\n", a->key_file);
    else
        return true;
    return false;
}

static void say_skipped(void *user, const char *name, const char *why)
{
    (void)user;
    fputs("dgemma: ", stderr);
    for (size_t n; *name; name += n) { /* a name has its line for itself */
        n = strcspn(name, "\n\t");
        cli_safe_write(stderr, name, n);
        for (; name[n] == '\n' || name[n] == '\t'; n++)
            fputc('?', stderr);
    }
    fputs(" is not served: ", stderr);
    cli_safe_write(stderr, why, strlen(why));
    fputc('\n', stderr);
}

/* --models: what a model does not say for itself, the options say for all. */
static bool read_models(serve_args *a, dgemma_error *err)
{
    a->engine.on_progress = loading;
    a->engine.progress_user = a;
    const dg_model_base base = {
        .options = a->engine, .idle_seconds = a->models_idle, .skipped = say_skipped};
    if (!a->models_path)
        return true;
    cli_guard_model(a->models_path);
    if (dg_model_specs_read(&a->models, a->models_path, &base, err))
        return false;
    a->server.models = &a->models;
    a->server.loading.max_bytes = (size_t)a->models_mb << 20;
    a->server.loading.opened = cli_guard_also;
    a->server.loading.closing = cli_unguard;
    return true;
}

/* Reads the files that the options name, opens the model, serves. */
static int serve(serve_args *a)
{
    dgemma_error err = {0};
    dg_buf keys, cert, key;
    cli_socket given;
    sigset_t set;
    char *path = dg_strdup(a->engine.model_path ? a->engine.model_path : "");
    int code;
    dg_buf_init(&keys, MAX_FILE);
    dg_buf_init(&cert, MAX_FILE);
    dg_buf_init(&key, MAX_FILE);

    stop_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL); /* for all threads to come */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error, not the end */
    allow_files(a->server.max_connections);
    if ((a->key_file && dg_file_read(&keys, a->key_file, &err)) ||
        (a->tls_cert && dg_file_read(&cert, a->tls_cert, &err)) ||
        (a->tls_key && dg_file_read(&key, a->tls_key, &err)) || !read_models(a, &err)) {
        code = cli_fail(&err);
    } else if (!files_say_something(a, &keys, &cert, &key) || !cli_given_socket(&given)) {
        code = EXIT_USAGE;
    } else {
        if (given.fd) {
            a->server.listen_fd = given.fd;
            a->server.host = given.host;
        }
        a->server.keys = a->keys.words;
        a->server.n_key = a->keys.n;
        a->server.origins = a->origins.words;
        a->server.n_origin = a->origins.n;
        a->server.image_hosts = a->image_hosts.words;
        a->server.n_image_host = a->image_hosts.n;
        a->server.tls_certificate = cert.data;
        a->server.tls_key = key.data;
        a->server.model_name = a->name ? a->name : cli_model_name(path);
        warn(a);
        code = run_server(a);
    }
    dg_buf_clear(&keys);
    dg_buf_clear(&cert);
    dg_buf_clear(&key);
    dg_model_specs_clear(&a->models);
    dg_free(path);
    return code;
}

/* What the numbers of the command line mean to the server and to the engine. */
static void settle(serve_args *a)
{
    a->server.max_body_bytes = (size_t)a->max_body_mb << 20;
    if (a->server.max_all_body_bytes < 4 * a->server.max_body_bytes)
        a->server.max_all_body_bytes = 4 * a->server.max_body_bytes;
    a->server.state_bytes = (uint64_t)a->state_mb << 20;
    a->server.answer_seconds = a->timeout;
    a->server.receive_seconds = a->receive;
    a->server.fetch_seconds = a->fetch;
    a->server.ping_seconds = a->ping;
    a->server.max_running = a->engine.max_running;
    a->server.decision_temperature = (double)a->decision_temperature;
    /* the server refuses before the engine would */
    a->engine.queue_length = a->server.max_active;
    if (a->server.state) /* lines of batches wait there too */
        a->engine.queue_length += a->engine.max_running + a->server.max_choices;
    a->engine.adapters = a->lora.list;
    a->engine.n_adapters = a->lora.n;
    a->engine.kv_bytes = (size_t)a->kv_mb << 20;
    a->engine.gpu_bytes = (size_t)a->gpu_mb << 20;
    if (!a->quiet)
        a->server.log = print_line;
}

static const char usage[] =
    "usage: dgemma serve [OPTION]...\n\n"
    "Answers requests over HTTP in the form of OpenAI's API (also Anthropic's and Ollama's), many\n"
    "at a time. In a browser it is a chat that shows the canvas settle. Ctrl-C or SIGTERM "
    "finishes\n"
    "what is under way.\n\n"
    "  dgemma serve\n"
    "  curl http://127.0.0.1:8080/v1/chat/completions \\\n"
    "      -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'\n"
    "  dgemma serve -m model.gguf --host 0.0.0.0 --port 80 --api-key-file keys\n";

int cmd_serve(int argc, char **argv)
{
    serve_args a = {.engine = dgemma_engine_defaults(), .server = dg_server_defaults()};
    a.engine.max_running = a.server.max_running;
    a.max_body_mb = (int)(a.server.max_body_bytes >> 20);
    a.state_mb = (int)(a.server.state_bytes >> 20);
    a.timeout = (int)a.server.answer_seconds;
    a.receive = (int)a.server.receive_seconds;
    a.fetch = (int)a.server.fetch_seconds;
    a.ping = (int)a.server.ping_seconds;
    a.drain = 120;
    a.models_idle = 300;
    a.models_mb = (int)(sysconf(_SC_PHYS_PAGES) / 1024 * sysconf(_SC_PAGESIZE) / 1024);
    a.server.loading.max_loaded = 4;
    a.decision_temperature = 1;
    const cli_option options[] = {
        {0, "model", NULL, NULL, NULL, NULL},
        {'m', "model", "PATH", "GGUF file or Hugging Face checkpoint folder (the pocket model)",
         cli_set_string, &a.engine.model_path},
        {0, "name", "NAME", "what clients call it (the path's last part)", cli_set_string, &a.name},
        {0, "mmproj", "FILE", "GGUF file of the vision tower (mmproj*.gguf beside the model)",
         cli_set_string, &a.engine.mmproj},
        {0, "chat-template", "a|b", "revision of the chat format (the checkpoint's own)",
         cli_set_string, &a.engine.chat_template},
        {0, "lora", "[NAME=]PATH[:SCALE]", CLI_LORA_HELP, cli_add_lora, &a.lora},
        {0, "several models", NULL, NULL, NULL, NULL},
        {0, "models", "FILE|DIR",
         "models that are loaded when they are asked for by name: all in a folder, or those that a "
         "JSON file lists",
         cli_set_string, &a.models_path},
        {0, "models-max", "N", "loaded at a time; 0: any number (4)", cli_set_int,
         &a.server.loading.max_loaded},
        {0, "models-memory", "MB", "of all that are loaded; 0: any (the machine's)", cli_set_int,
         &a.models_mb},
        {0, "models-idle", "S", "seconds without a request before one is unloaded; 0: never (300)",
         cli_set_int, &a.models_idle},
        {0, "who may ask", NULL, NULL, NULL, NULL},
        {0, "host", "ADDRESS", "listen on this address (127.0.0.1: this machine alone)",
         cli_set_string, &a.server.host},
        {'p', "port", "N", "and this port; 0 takes a free one (8080)", cli_set_int, &a.server.port},
        {0, "api-key", "KEY", "ask for this key; may be repeated", add_word, &a.keys},
        {0, "api-key-file", "FILE", "ask for one of the keys in a file, one on each line",
         cli_set_string, &a.key_file},
        {0, "share-cache", NULL, "one prefix cache for all keys, not one for each", cli_set_switch,
         &a.server.share_cache},
        {0, "tls-cert", "FILE", "speak HTTPS with this certificate (PEM)", cli_set_string,
         &a.tls_cert},
        {0, "tls-key", "FILE", "and its key", cli_set_string, &a.tls_key},
        {0, "trusted-proxies", "NETS",
         "networks of proxies, 10.0.0.0/8,::1, whose X-Forwarded-For says who asks, in the log",
         cli_set_string, &a.server.trusted_proxies},
        {0, "cors-origin", "ORIGIN",
         "let pages of this site use the server; * all; may be repeated", add_word, &a.origins},
        {0, "image-host", "HOST",
         "fetch pictures by their http(s) address from this host; * from all public ones; may be "
         "repeated",
         add_word, &a.image_hosts},
        {0, "state", "DIR",
         "keep files, batches and responses in this folder, which is made (nothing is kept)",
         cli_set_string, &a.server.state},
        {0, "slot-save-path", "DIR", "a folder that POST /slots saves conversations in (none)",
         cli_set_string, &a.server.slot_path},
        {0, "limits", NULL, NULL, NULL, NULL},
        {0, "decision-temperature", "T",
         "divides log-probabilities of labels in decisions (1; see dgemma decide --calibrate)",
         cli_set_float, &a.decision_temperature},
        {0, "parallel", "N", "answers that run together (16)", cli_set_count,
         &a.engine.max_running},
        {0, "max-active", "N", "answers that run or wait; more get status 429 (256)", cli_set_count,
         &a.server.max_active},
        {0, "max-connections", "N", "open connections (1024)", cli_set_count,
         &a.server.max_connections},
        {0, "max-body", "MB", "size of a request (32)", cli_set_count, &a.max_body_mb},
        {0, "max-images", "N", "pictures and videos in a request (16)", cli_set_int,
         &a.server.max_images},
        {0, "max-choices", "N", "answers to one request (16)", cli_set_count,
         &a.server.max_choices},
        {0, "state-size", "MB", "all that --state keeps, together (4096)", cli_set_count,
         &a.state_mb},
        {0, "state-days", "N", "days that it is kept (30)", cli_set_count, &a.server.state_days},
        {0, "timeout", "S", "seconds for an answer, waiting included, from 1 (900)", cli_set_count,
         &a.timeout},
        {0, "fetch-timeout", "S", "seconds for pictures to be fetched (10)", cli_set_int, &a.fetch},
        {0, "receive-timeout", "S", "seconds for a request to arrive (120)", cli_set_int,
         &a.receive},
        {0, "idle-timeout", "S", "seconds of silence before a connection is closed (75)",
         cli_set_int, &a.server.idle_seconds},
        {0, "ping", "S", "seconds of silence before a stream says that it is alive (15)",
         cli_set_int, &a.ping},
        {0, "drain-delay", "S",
         "seconds for balancers to see that /health fails, before requests are refused (0)",
         cli_set_int, &a.drain_delay},
        {0, "drain-timeout", "S", "seconds for answers under way when told to stop (120)",
         cli_set_int, &a.drain},
        {0, "log", NULL, NULL, NULL, NULL},
        {0, "log-prompts", NULL, "write what is asked into the log, its first kilobyte",
         cli_set_switch, &a.server.log_prompts},
        {'q', "quiet", NULL, "no line for each request", cli_set_switch, &a.quiet},
        {0, "machine", NULL, NULL, NULL, NULL},
        {0, "device", "NAME", "what computes: cpu, cuda, cuda:N or auto (auto)", cli_set_string,
         &a.engine.device},
        {0, "weights", "FORM",
         "made narrower on a GPU: experts fp8 or int4, the rest fp8 (as stored)", cli_set_string,
         &a.engine.weights},
        {'t', "threads", "N", "threads (one for each processor)", cli_set_int, &a.engine.n_threads},
        {'c', "context", "N", "longest prompt and answer together (the model's)", cli_set_int,
         &a.engine.context_length},
        {0, "gpu-memory", "MB", "memory of the GPU for all, weights included (what is free)",
         cli_set_int, &a.gpu_mb},
        {0, "kv-memory", "MB", "memory for keys and values of requests and prefix cache",
         cli_set_int, &a.kv_mb},
        {0, "kv-type", "TYPE", "keys and values as " DG_KV_TYPES " (bf16)", cli_set_string,
         &a.kv_type},
        {0, "no-prefix-cache", NULL, "forget the keys and values of a request when it ends",
         cli_set_switch, &a.engine.no_prefix_cache},
        {0, "cpu-flags", "NAME", "instruction set: neon, i8mm, bf16, avx2, vnni, amx or ref (best)",
         cli_set_string, &a.engine.cpu},
        {0, "profile", "NAME", "products on quantised weights: integer or float (integer)",
         cli_set_string, &a.engine.profile},
        {'h', "help", NULL, "this text", cli_set_switch, &a.help},
    };
    size_t n_option = sizeof options / sizeof options[0], n_rest;
    if (!cli_parse("serve", options, n_option, argc, argv, NULL, 0, &n_rest))
        return EXIT_USAGE;
    if (a.help) {
        cli_print_help(usage, options, n_option);
        return EXIT_OK;
    }
    if (!dg_kv_type_named(&a.engine.kv_type, a.kv_type)) {
        fprintf(stderr, "dgemma serve: --kv-type is " DG_KV_TYPES "\n");
        return EXIT_USAGE;
    }
    if (a.models_path &&
        (a.engine.model_path || a.name || a.engine.mmproj || a.lora.n || a.engine.chat_template)) {
        fprintf(stderr, "dgemma serve: --models goes without -m, --name, --mmproj, --chat-template "
                        "and --lora: the file of models has them\n");
        return EXIT_USAGE;
    }
    if (!a.models_path && !cli_model_or_default(&a.engine.model_path))
        return EXIT_FAILED;
    settle(&a);
    return serve(&a);
}

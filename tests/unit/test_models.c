/* Several models: the file that lists them, their names, and how long one stays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/common.h"
#include "server/batch.h"
#include "server/keep_alive.h"
#include "server/models.h"
#include "suites.h"

static const dg_model_base base = {.options = {.context_length = 777, .max_running = 4},
                                   .idle_seconds = 300};

static dgemma_status parse(dg_model_specs *s, const char *text, dgemma_error *err)
{
    *s = (dg_model_specs){0};
    dgemma_status st = dg_models_file_parse(s, text, strlen(text), "/srv/models.json", &base, err);
    return st ? st : dg_model_specs_check_names(s, "/srv/models.json", err);
}

static const char good[] =
    "{\"default\": \"b\", \"models\": ["
    "{\"name\": \"a\", \"path\": \"x/a.gguf\", \"aliases\": [\"gpt\", \"claude-*\", \"q:4\", "
    "\"q\"], "
    "\"context\": 512, \"kv_memory\": 3, \"kv_type\": \"f32\", \"pinned\": true, \"idle\": 7, "
    "\"adapters\": [{\"name\": \"north\", \"path\": \"n\", \"scale\": 0.5}]},"
    "{\"name\": \"b\", \"path\": \"/abs/b\", \"device\": \"cpu\", \"kv_type\": \"q8_0\", "
    "\"preload\": true, "
    "\"mmproj\": null, \"aliases\": [\"claude-opus*\"]},"
    "{\"name\": \"any\", \"path\": \"c\", \"aliases\": [\"*\"]}]}";

START_TEST(a_file_is_read)
{
    dg_model_specs s;
    dgemma_error err = {0};
    ck_assert_msg(parse(&s, good, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_uint_eq(s.n, 3);
    ck_assert_uint_eq(s.first, 1);
    const dg_model_spec *a = &s.list[0], *b = &s.list[1];
    ck_assert_str_eq(a->name, "a");
    ck_assert_str_eq(a->options.model_path, "/srv/x/a.gguf");
    ck_assert_uint_eq(a->n_alias, 4);
    ck_assert_int_eq(a->options.context_length, 512);
    ck_assert_uint_eq(a->options.kv_bytes, 3 << 20);
    ck_assert_int_eq(a->options.kv_type, DGEMMA_KV_F32);
    ck_assert_int_eq(a->idle_seconds, 7);
    ck_assert(a->pinned && a->preload);
    ck_assert_uint_eq(a->options.n_adapters, 1);
    ck_assert_str_eq(a->options.adapters[0].path, "/srv/n");
    ck_assert(a->options.adapters[0].scale == 0.5f);
    ck_assert_str_eq(b->options.model_path, "/abs/b");
    ck_assert_str_eq(b->options.device, "cpu");
    ck_assert_int_eq(b->options.kv_type, DGEMMA_KV_Q8_0);
    ck_assert_int_eq(b->options.context_length, 777);
    ck_assert_int_eq(b->options.max_running, 4);
    ck_assert_int_eq(b->idle_seconds, 300);
    ck_assert(!b->pinned && b->preload && !b->options.mmproj);
    dg_model_specs_clear(&s);
}
END_TEST

#define ONE(more) "{\"models\": [{\"name\": \"a\", \"path\": \"p\"" more "}]}"

/* What is wrong, and the words that say so. */
static const struct {
    const char *text, *says;
} wrong[] = {
    {"", "line 1"},
    {"\xEF\xBB\xBF{}", "it begins with a byte order mark"},
    {ONE(", \"adapters\": [{\"name\": \"n\", \"path\": \"n\", \"scale\": 1001}]"), "scale"},
    {"[]", "wanted an object"},
    {"{}", "models: wanted a list"},
    {"{\"models\": []}", "models: wanted a list"},
    {"{\"models\": {}}", "models: wanted a list"},
    {"{\"models\": [7]}", "models[0]: wanted an object"},
    {"{\"models\": [{\"name\": \"a\"}]}", "models[0]: path: missing"},
    {"{\"models\": [{\"path\": \"a\"}]}", "models[0]: name: missing"},
    {"{\"models\": [{\"name\": \"\", \"path\": \"a\"}]}", "name: wanted text"},
    {"{\"models\": [{\"name\": \"a\\u0000b\", \"path\": \"a\"}]}", "line 1"},
    {"{\"models\": [{\"name\": \"a\\nb\", \"path\": \"a\"}]}", "no control characters"},
    {"{\"models\": [{\"name\": \"a\", \"name\": \"b\", \"path\": \"a\"}]}", "duplicate"},
    {"{\"models\": [{\"name\": \"a\", \"path\": \"p\"}, {\"name\": \"a\", \"path\": \"q\"}]}",
     "models[1]: \"a\" is the name of two"},
    {"{\"model\": []}", "\"model\" is not known"},
    {"{\"default\": \"z\", \"models\": [{\"name\": \"a\", \"path\": \"p\"}]}", "default"},
    {ONE(", \"pat\": 1"), "models[0]: \"pat\" is not known"},
    {ONE(", \"\": 1"), "is not known"},
    {ONE(", \"name, path\": 1"), "is not known"},
    {ONE(", \"context\": -1"), "context"},
    {ONE(", \"context\": \"8k\""), "context: wanted a whole number"},
    {ONE(", \"context\": 1.5"), "context"},
    {ONE(", \"kv_memory\": 1e12"), "kv_memory"},
    {ONE(", \"kv_type\": \"q4\""), "kv_type is bf16, f32, q8_0 or fp8"},
    {ONE(", \"pinned\": 1"), "pinned: wanted true or false"},
    {ONE(", \"device\": 1"), "device: wanted text"},
    {ONE(", \"aliases\": \"b\""), "aliases: wanted a list"},
    {ONE(", \"aliases\": [1]"), "aliases[0]: wanted text"},
    {ONE(", \"aliases\": [\"\"]"), "aliases"},
    {ONE(", \"aliases\": [\"a\"]"), "is the name of two"},
    {ONE(", \"adapters\": [{\"name\": \"n\"}]"), "models[0].adapters[0]: path: missing"},
    {ONE(", \"adapters\": [{\"path\": \"n\"}]"), "models[0].adapters[0]: name: missing"},
    {ONE(", \"adapters\": [{\"name\": \"n\", \"path\": \"n\", \"rank\": 1}]"), "\"rank\""},
    {ONE(", \"adapters\": [{\"name\": \"a\", \"path\": \"n\"}]"), "is the name of two"},
    {ONE(", \"adapters\": 1"), "adapters: wanted a list"},
};

START_TEST(a_mistake_is_told_with_its_place)
{
    dg_model_specs s;
    dgemma_error err = {0};
    ck_assert_msg(parse(&s, wrong[_i].text, &err), "%s", wrong[_i].text);
    ck_assert_msg(strstr(err.msg, wrong[_i].says) && strstr(err.msg, "/srv/models.json"), "%s: %s",
                  wrong[_i].text, err.msg);
    dg_model_specs_clear(&s);
}
END_TEST

/* Whatever is cut off, nothing is read beyond it. */
START_TEST(a_name_may_have_200_bytes)
{
    for (int n = DG_MODEL_NAME_MAX; n <= DG_MODEL_NAME_MAX + 1; n++) {
        char text[DG_MODEL_NAME_MAX + 64];
        dg_model_specs s;
        snprintf(text, sizeof text, "{\"models\": [{\"name\": \"%0*d\", \"path\": \"p\"}]}", n, 7);
        ck_assert_int_eq(parse(&s, text, NULL) == DGEMMA_OK, n == DG_MODEL_NAME_MAX);
        dg_model_specs_clear(&s);
    }
}
END_TEST

START_TEST(a_part_of_a_file_is_none)
{
    for (size_t n = 0; n < sizeof good - 1; n++) {
        dg_model_specs s = {0};
        ck_assert(dg_models_file_parse(&s, good, n, "m.json", &base, NULL));
        dg_model_specs_clear(&s);
    }
}
END_TEST

static const struct {
    const char *name, *model, *adapter;
} named[] = {
    {NULL, "b", NULL},
    {"", "b", NULL},
    {"a", "a", NULL},
    {"a:latest", "a", NULL},
    {"gpt", "a", NULL},
    {"gpt:latest", "a", NULL},
    {"q:4", "a", NULL},
    {"claude-", "a", NULL},
    {"claude-sonnet", "a", NULL},
    {"claude-opus-9", "b", NULL}, /* the longest beginning */
    {"claude", "any", NULL},
    {"north", "a", "north"},
    {"a:north", "a", "north"},
    {"gpt:north", "a", "north"},
    {"q:4:north", "a", "north"}, /* which is no "4:north" of q */
    {"q:north", "a", "north"},
    {"q:5:north", "any", NULL},
    {"a:north:latest", "a", "north"},
    {"b:north", "any", NULL},
    {"../a", "any", NULL},
    {":", "any", NULL},
    {":latest", "any", NULL},
};

START_TEST(names_are_looked_up)
{
    dg_model_specs s;
    dg_models *ms;
    const dg_chat_limits limits = {0};
    ck_assert_int_eq(parse(&s, good, NULL), DGEMMA_OK);
    ck_assert_int_eq(dg_models_create(&ms, &s, &(dg_models_options){0}, &limits, NULL), DGEMMA_OK);
    for (size_t i = 0; i < DG_COUNT(named); i++) {
        const char *adapter;
        const dg_model *m = dg_models_find(ms, named[i].name, &adapter);
        ck_assert_ptr_nonnull(m);
        ck_assert_msg(!strcmp(m->name, named[i].model), "%s is %s", named[i].name, m->name);
        ck_assert(!adapter == !named[i].adapter && (!adapter || !strcmp(adapter, "north")));
    }
    s.list[2].n_alias = 0;
    ck_assert_ptr_null(dg_models_find(ms, "claude", NULL));
    dg_models_free(ms);
    dg_model_specs_clear(&s);
}
END_TEST

/* Where no model could be loaded beside those that stay, nobody is left to find out. */
START_TEST(what_can_never_fit_is_refused)
{
    dg_model_specs s;
    dg_models *ms;
    dgemma_error err = {0};
    const dg_chat_limits limits = {0};
    ck_assert_int_eq(parse(&s, good, NULL), DGEMMA_OK);
    s.list[1].info.weight_bytes = (size_t)5 << 20;
    ck_assert_int_eq(
        dg_models_create(&ms, &s, &(dg_models_options){.max_bytes = 4 << 20}, &limits, &err),
        DGEMMA_E_LIMIT);
    ck_assert(strstr(err.msg, "the model b needs 6 MB"));
    ck_assert_int_eq(
        dg_models_create(&ms, &s, &(dg_models_options){.max_loaded = 1}, &limits, &err),
        DGEMMA_E_LIMIT);
    ck_assert(strstr(err.msg, "the model b") && strstr(err.msg, "beside"));
    s.list[0].info.weight_bytes = (size_t)2 << 20;
    ck_assert_int_eq(
        dg_models_create(&ms, &s, &(dg_models_options){.max_bytes = 6 << 20}, &limits, &err),
        DGEMMA_E_LIMIT);
    ck_assert(strstr(err.msg, "the model b") && strstr(err.msg, "beside"));
    s.list[1].pinned = true;
    ck_assert_int_eq(
        dg_models_create(&ms, &s, &(dg_models_options){.max_loaded = 1}, &limits, &err),
        DGEMMA_E_LIMIT);
    dg_model_specs_clear(&s);
}
END_TEST

static const struct {
    const char *json;
    bool ok;
    double seconds;
} durations[] = {
    {"5", true, 5},
    {"0", true, 0},
    {"-1", true, -1},
    {"2.5", true, 2.5},
    {"\"5m\"", true, 300},
    {"\"1h30m\"", true, 5400},
    {"\"0\"", true, 0},
    {"\"-0\"", true, 0},
    {"\"00\"", false, 0},
    {"\"2\\u00b5s\"", true, 2e-6},
    {"\"0s\"", true, 0},
    {"\"-1s\"", true, -1},
    {"\"250ms\"", true, 0.25},
    {"\"1.5h\"", true, 5400},
    {"\"9999999h\"", true, -1},
    {"\"\"", false, 0},
    {"\"5\"", false, 0},
    {"\"m\"", false, 0},
    {"\"5x\"", false, 0},
    {"\"-\"", false, 0},
    {"\"0x5m\"", false, 0},
    {"\"infs\"", false, 0},
    {"\"nans\"", false, 0},
    {"\"5m \"", false, 0},
    {"true", false, 0},
    {"[]", false, 0},
    {"\"1e999s\"", false, 0},
};

START_TEST(durations_are_read)
{
    dg_keep_alive k;
    dg_http_error e;
    json_t *v = json_loads(durations[_i].json, JSON_DECODE_ANY, NULL);
    json_t *root = json_pack("{s:o}", "keep_alive", v);
    ck_assert_msg(dg_keep_alive_read(&k, root, &e) == durations[_i].ok, "%s", durations[_i].json);
    if (durations[_i].ok)
        ck_assert_msg(k.given && k.seconds == durations[_i].seconds, "%s: %g", durations[_i].json,
                      k.seconds);
    json_decref(root);
}
END_TEST

static void put(dg_buf *b, const char *text)
{
    dg_buf_init(b, 4096);
    ck_assert(dg_buf_puts(b, text));
}

START_TEST(pages_of_metrics_are_one)
{
    dg_buf pages[3], out;
    put(&pages[0],
        "# HELP x of x\n# TYPE x gauge\nx{m=\"0\"} 1\n# HELP y y\n# TYPE y gauge\ny 1\ny 2\n");
    put(&pages[1],
        "# HELP x of x\n# TYPE x gauge\nx{m=\"1\"} 2\n# HELP xz z\n# TYPE xz gauge\nxz 3\n");
    put(&pages[2], "# HELP xz z\n# TYPE xz gauge\nxz 4\n# HELP y y\n# TYPE y gauge\ny 5\n");
    dg_buf_init(&out, 4096);
    ck_assert(dg_metrics_merge(pages, 3, &out));
    ck_assert_str_eq(out.data, "# HELP x of x\n# TYPE x gauge\nx{m=\"0\"} 1\nx{m=\"1\"} 2\n"
                               "# HELP y y\n# TYPE y gauge\ny 1\ny 2\ny 5\n"
                               "# HELP xz z\n# TYPE xz gauge\nxz 3\nxz 4\n");
    for (size_t i = 0; i < 3; i++)
        dg_buf_clear(&pages[i]);
    dg_buf_clear(&out);
}
END_TEST

/* ---- batches ---- */

typedef struct refusing {
    dg_models *ms;
    int status; /* what the model that is waited for cannot be loaded with */
    int n;      /* how often it was tried */
} refusing;

static bool refuse_it(void *user, const dg_batch_progress *p)
{
    refusing *r = user;
    dg_http_error e;
    dg_refuse(&e, r->status, "model_load_failed", "model", "no model today");
    e.retry_after = r->status == 503;
    (void)p;
    pthread_mutex_lock(&r->ms->lock);
    r->n += r->ms->list[0].first_waiting != NULL;
    dg_model_refuse(&r->ms->list[0], &e);
    pthread_mutex_unlock(&r->ms->lock);
    return true;
}

/* Without room for its model a batch ends, to be run again, and no line of it has an error; what
 * else is wrong with a model is found out once. */
START_TEST(batches_ask_later_where_there_is_no_room)
{
    static const char line[] = "{\"custom_id\": \"%d\", \"method\": \"POST\", \"url\": "
                               "\"/v1/chat/completions\", \"body\": {\"model\": \"a\", "
                               "\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}}\n";
    char folder[] = "/tmp/dgemma-models-XXXXXX", in[64], out[64], errors[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(in, sizeof in, "%s/in", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    snprintf(errors, sizeof errors, "%s/errors", folder);
    FILE *f = fopen(in, "w");
    for (int i = 0; i < 3; i++)
        fprintf(f, line, i);
    fclose(f);

    dg_model_specs s;
    const dg_chat_limits limits = {0};
    refusing r = {.status = _i ? 500 : 503};
    ck_assert_int_eq(parse(&s, good, NULL), DGEMMA_OK);
    ck_assert_int_eq(dg_models_create(&r.ms, &s, &(dg_models_options){0}, &limits, NULL),
                     DGEMMA_OK);
    const dg_batch_options opt = {.in = in,
                                  .out = out,
                                  .errors = errors,
                                  .n_ahead = 1,
                                  .max_line_bytes = 1 << 20,
                                  .max_choices = 1,
                                  .tick = refuse_it,
                                  .tick_user = &r,
                                  .models = r.ms};
    dg_batch *b;
    dg_batch_progress sum;
    dgemma_error err = {0};
    ck_assert_int_eq(dg_batch_open(&b, &opt, &err), DGEMMA_OK);
    ck_assert_int_eq(dg_batch_run(b, NULL, &sum, &err), _i ? DGEMMA_OK : DGEMMA_E_BUSY);
    ck_assert_uint_eq(sum.n_failed, _i ? 3 : 0);
    ck_assert_int_eq(r.n, 1);
    ck_assert(_i || strstr(err.msg, "no model today"));
    dg_batch_free(b);
    dg_models_free(r.ms);
    dg_model_specs_clear(&s);
    unlink(in);
    unlink(out);
    unlink(errors);
    rmdir(folder);
}
END_TEST

Suite *models_suite(void)
{
    Suite *s = suite_create("models");
    TCase *t = tcase_create("models");
    tcase_add_test(t, a_file_is_read);
    tcase_add_loop_test(t, a_mistake_is_told_with_its_place, 0, DG_COUNT(wrong));
    tcase_add_test(t, a_name_may_have_200_bytes);
    tcase_add_test(t, a_part_of_a_file_is_none);
    tcase_add_test(t, names_are_looked_up);
    tcase_add_test(t, what_can_never_fit_is_refused);
    tcase_add_loop_test(t, durations_are_read, 0, DG_COUNT(durations));
    tcase_add_test(t, pages_of_metrics_are_one);
    tcase_add_loop_test(t, batches_ask_later_where_there_is_no_room, 0, 2);
    suite_add_tcase(s, t);
    return s;
}

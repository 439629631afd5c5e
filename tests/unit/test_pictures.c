/* Pictures in the prompt: their places, their tokens, and that each is looked at once. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/base64.h"
#include "base/common.h"
#include "backend/backend.h"
#include "base/file.h"
#include "dgemma.h"
#include "dgemma_tools.h"
#include "engine/block_loop.h"
#include "suites.h"
#include "support/cpu_engine.h"
#include "support/skip.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "support/write_tower.h"

static const char model_path[] = "tests/fixtures/golden/sampler_finishes/model";
static const char picture_path[] = "tests/fixtures/golden/vision/image.png";

static dgemma_engine *open_engine(void)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    dgemma_error err = {0};
    opt.model_path = model_path;
    ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    dgemma_model_info info;
    dgemma_engine_info(e, &info);
    ck_assert(info.has_vision);
    return e;
}

typedef struct said {
    int32_t ids[256];
    size_t n;
    dgemma_stats stats;
} said;

static bool on_event(void *user, const dgemma_event *e)
{
    said *s = user;
    if (e->kind == DGEMMA_EVENT_BLOCK) {
        memcpy(s->ids + s->n, e->tokens, e->n_tokens * sizeof *s->ids);
        s->n += e->n_tokens;
    }
    return true;
}

static void ask(dgemma_engine *e, dgemma_request_options *opt, said *s)
{
    dgemma_error err = {0};
    memset(s, 0, sizeof *s);
    opt->max_tokens = 32;
    ck_assert_msg(dgemma_generate(e, opt, on_event, s, &s->stats, &err) == DGEMMA_OK, "%s",
                  err.msg);
}

static dgemma_status refused(dgemma_engine *e, const dgemma_request_options *opt, const char *why)
{
    dgemma_error err = {0};
    dgemma_request *r = NULL;
    dgemma_status st = dgemma_request_submit(&r, e, opt, &err);
    if (!st)
        ck_abort_msg("taken, but should say: %s", why);
    if (!strstr(err.msg, why))
        ck_abort_msg("\"%s\" does not say \"%s\"", err.msg, why);
    return st;
}

/* The bytes of the picture; the caller clears. */
static dg_buf picture(void)
{
    dg_buf b;
    dg_buf_init(&b, 1 << 20);
    ck_assert_int_eq(dg_file_read(&b, picture_path, NULL), DGEMMA_OK);
    return b;
}

static char *base64(const dg_buf *b)
{
    dg_buf text;
    dg_buf_init(&text, 1 << 21);
    ck_assert(dg_base64_encode(&text, b->data, b->len));
    return text.data;
}

/* RFC 4648, section 10 */
START_TEST(base64_of_few_bytes)
{
    static const char *const want[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                       "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    for (size_t n = 0; n < sizeof want / sizeof *want; n++) {
        dg_buf text;
        dg_buf_init(&text, 8);
        ck_assert(dg_base64_encode(&text, "foobar", n));
        ck_assert_str_eq(text.data ? text.data : "", want[n]);
        dg_buf_clear(&text);
    }
    dg_buf full;
    dg_buf_init(&full, 7);
    ck_assert(!dg_base64_encode(&full, "foobar", 6));
    dg_buf_clear(&full);
}
END_TEST

START_TEST(base64_both_ways)
{
    dg_buf b = picture(), back;
    char *text = base64(&b);
    dg_buf_init(&back, 1 << 20);
    ck_assert_int_eq(dg_base64_decode(&back, text, strlen(text)), DGEMMA_OK);
    ck_assert_uint_eq(back.len, b.len);
    ck_assert_mem_eq(back.data, b.data, b.len);
    static const char *const wrong[] = {"A", "A===", "AAAA=", "AA=A", "AA*A", "AAA=AAAA"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(dg_base64_decode(&back, wrong[i], strlen(wrong[i])) == DGEMMA_E_ARG, "%s",
                      wrong[i]);
    ck_assert_int_eq(dg_base64_decode(&back, "QUI", 3), DGEMMA_OK); /* without padding */
    dg_buf_clear(&back);
    dg_buf_clear(&b);
    dg_free(text);
}
END_TEST

START_TEST(files_and_memory_are_the_same)
{
    dgemma_engine *e = open_engine();
    dgemma_request_options opt = dgemma_request_defaults(e);
    dg_buf b = picture();
    dgemma_media file = {.path = picture_path}, memory = {.data = b.data, .size = b.len};
    static said none, from_file, from_memory, marked;
    opt.chat_prompt = "What is this?";
    ask(e, &opt, &none);
    opt.n_media = 1;
    opt.media = &file;
    ask(e, &opt, &from_file);
    opt.media = &memory;
    ask(e, &opt, &from_memory);
    ck_assert_int_eq(from_file.stats.n_pictures, 1);
    ck_assert_int_eq(from_file.stats.n_pictures_encoded, 1);
    ck_assert_int_eq(from_memory.stats.n_pictures_encoded, 0); /* known by now */
    ck_assert_int_eq(none.stats.n_pictures, 0);
    ck_assert_int_gt(from_file.stats.n_prompt, none.stats.n_prompt + 60);
    ck_assert_uint_eq(from_file.n, from_memory.n);
    ck_assert_mem_eq(from_file.ids, from_memory.ids, from_file.n * sizeof *from_file.ids);
    dgemma_media twice[2] = {file,
                             memory}; /* the same picture twice, in another size: looked at once */
    static said pair;
    opt.media = twice;
    opt.n_media = 2;
    opt.image_tokens = 70;
    ask(e, &opt, &pair);
    ck_assert_int_eq(pair.stats.n_pictures, 2);
    ck_assert_int_eq(pair.stats.n_pictures_encoded, 1);
    opt.media = &memory;
    opt.n_media = 1;
    opt.image_tokens = 0;
    opt.chat_prompt = "<|image|>What is this?"; /* in front is where it went */
    ask(e, &opt, &marked);
    ck_assert_int_eq(marked.stats.n_prompt, from_file.stats.n_prompt);
    ck_assert_mem_eq(from_file.ids, marked.ids, from_file.n * sizeof *from_file.ids);
    dg_buf_clear(&b);
    dgemma_engine_close(e);
}
END_TEST

START_TEST(a_conversation_looks_once)
{
    dgemma_engine *e = open_engine();
    dgemma_request_options opt = dgemma_request_defaults(e);
    dg_buf b = picture();
    char *data = base64(&b), *json = malloc(strlen(data) + 1024);
    static said first, second;
    sprintf(json,
            "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Look:\"}, "
            "{\"type\": \"image_url\","
            " \"image_url\": {\"url\": \"data:image/png;base64,%s\"}}]}]",
            data);
    opt.messages = json;
    ask(e, &opt, &first);
    ck_assert_int_eq(first.stats.n_pictures_encoded, 1);
    sprintf(json,
            "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Look:\"}, "
            "{\"type\": \"image_url\","
            " \"image_url\": {\"url\": \"data:image/png;base64,%s\"}}]}, {\"role\": \"assistant\", "
            "\"content\": \"I see.\"},"
            " {\"role\": \"user\", \"content\": \"And now?\"}]",
            data);
    ask(e, &opt, &second);
    ck_assert_int_eq(second.stats.n_pictures, 1);
    ck_assert_int_eq(second.stats.n_pictures_encoded, 0);
    free(json);
    dg_free(data);
    dg_buf_clear(&b);
    dgemma_engine_close(e);
}
END_TEST

START_TEST(budgets_cost_what_they_say)
{
    dgemma_engine *e = open_engine();
    dgemma_request_options opt = dgemma_request_defaults(e);
    dgemma_media file = {.path = picture_path};
    static said s;
    opt.chat_prompt = "x";
    ask(e, &opt, &s);
    int plain = s.stats.n_prompt;
    opt.media = &file;
    opt.n_media = 1;
    static const int budgets[] = {70, 140, 280};
    for (size_t i = 0; i < 3; i++) {
        opt.image_tokens = budgets[i];
        ask(e, &opt, &s);
        int cost = s.stats.n_prompt - plain - 2; /* without its two markers */
        ck_assert_int_le(cost, budgets[i]);
        ck_assert_int_gt(cost, budgets[i] * 3 / 4);
        ck_assert_int_eq(s.stats.n_pictures_encoded, 1); /* another size is another picture */
    }
    dgemma_engine_close(e);
}
END_TEST

START_TEST(wrong_pictures_are_refused)
{
    dgemma_engine *e = open_engine();
    dgemma_request_options opt = dgemma_request_defaults(e);
    dgemma_media two[2] = {{.path = picture_path}, {.path = picture_path}};
    opt.media = two;
    opt.n_media = 2;
    opt.chat_prompt = "one <|image|>";
    refused(e, &opt, "mark all or none");
    opt.chat_prompt = "x";
    two[1].path = "tests/no/such/picture.png";
    refused(e, &opt, "No such file");
    two[1].path = "README.md";
    refused(e, &opt, "README.md");
    two[1] = (dgemma_media){0};
    refused(e, &opt, "a file or bytes");
    two[1] = (dgemma_media){.path = picture_path, .data = "x", .size = 1};
    refused(e, &opt, "a file or bytes");
    two[1] = (dgemma_media){.data = "\x89PNG\r\n\x1a\n", .size = 8};
    ck_assert_int_ne(refused(e, &opt, ""), DGEMMA_OK);
    static const int budgets[] = {-1, 1121, INT_MAX};
    for (size_t i = 0; i < DG_COUNT(budgets); i++) {
        two[1] = (dgemma_media){.path = picture_path, .max_soft_tokens = budgets[i]};
        ck_assert_int_eq(refused(e, &opt, "medium 1: max_soft_tokens"), DGEMMA_E_ARG);
    }
    opt.n_media = 1;
    opt.image_tokens = 5000;
    refused(e, &opt, "image_tokens");
    opt.image_tokens = 0;
    opt.chat_prompt = NULL;
    opt.raw_prompt = "no place";
    refused(e, &opt, "places for 0");
    opt.raw_prompt = "<|image|> <|image|>";
    refused(e, &opt, "more pictures");
    opt.raw_prompt = NULL;
    opt.n_media = 0;
    opt.messages = "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": "
                   "{\"url\": \"data:image/png;base64,\"}}]}]";
    refused(e, &opt, "data URL");
    opt.messages = "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": "
                   "{\"url\": \"file:///etc/passwd\"}}]}]";
    refused(e, &opt, "not followed");
    opt.messages = "[{\"role\": \"user\", \"content\": [{\"type\": \"input_audio\", "
                   "\"input_audio\": {\"data\": \"AAAA\"}}]}]";
    refused(e, &opt, "hear");
    dgemma_engine_close(e);
}
END_TEST

START_TEST(videos_are_frames_with_times)
{
    dgemma_engine *e = open_engine();
    dgemma_request_options opt = dgemma_request_defaults(e);
    dgemma_media clip = {.path = "tests/data/video/five.mkv", .video = true};
    dgemma_error err = {0};
    dgemma_request *r = NULL;
    opt.chat_prompt = "What happens in <|video|>?";
    opt.media = &clip;
    opt.n_media = 1;
    dgemma_status st = dgemma_request_submit(&r, e, &opt, &err);
    dgemma_request_free(r);
    if (st == DGEMMA_E_UNSUPPORTED && strstr(err.msg, "this build reads no video"))
        dg_test_skip("built without FFmpeg's libraries");
    else {
        static said s;
        ask(e, &opt, &s);
        ck_assert_int_eq(s.stats.n_pictures, 5);
        clip.video = false; /* its place is for a video */
        refused(e, &opt, "mark all or none");
    }
    dgemma_engine_close(e);
}
END_TEST

/* ---- memory ---- */

static size_t picture_bytes(dgemma_engine *e)
{
    dgemma_engine_counters c;
    dgemma_engine_count(e, &c);
    return c.picture_bytes_used;
}

static dgemma_engine *open_with(size_t bytes)
{
    dgemma_engine_options opt = dg_test_engine_defaults();
    dgemma_engine *e = NULL;
    opt.model_path = model_path;
    opt.picture_bytes = bytes;
    ck_assert_int_eq(dgemma_engine_open(&e, &opt, NULL), DGEMMA_OK);
    return e;
}

/* One pixel, which becomes as large as any picture. */
static const unsigned char dot[] = {'G', 'I', 'F', '8', '9', 'a', 1, 0,    1, 0, 0x80, 0,
                                    0,   0,   200, 0,   9,   9,   9, 0x2C, 0, 0, 0,    0,
                                    1,   0,   1,   0,   0,   2,   2, 0x44, 1, 0, 0x3B};
enum { DOT_SIDE = 12 * 8, DOT_BYTES = DOT_SIDE * DOT_SIDE * 3 }; /* of 64 soft tokens */

static dgemma_request_options about_dot(const dgemma_engine *e)
{
    static const dgemma_media media = {.data = dot, .size = sizeof dot};
    dgemma_request_options opt = dgemma_request_defaults(e);
    opt.chat_prompt = "What is it?";
    opt.media = &media;
    opt.n_media = 1;
    opt.image_tokens = 70;
    opt.max_tokens = 16;
    opt.max_denoise_steps = 3;
    return opt;
}

/* Eight answers to one prompt: its picture is there once, whatever runs and waits, and until the
 * last of them has ended, not until it is freed. The answers are those of eight prompts. */
START_TEST(choices_share_a_prompt)
{
    enum { N = 8 };
    static said apart[N], shared;
    dgemma_engine *e = open_with(0);
    dgemma_request_options opt = about_dot(e);
    for (int i = 0; i < N; i++) {
        opt.seed = (uint64_t)i;
        ask(e, &opt, &apart[i]);
    }
    ck_assert_uint_eq(picture_bytes(e), 0);

    dgemma_prompt *prompt = NULL;
    dgemma_request *r[N];
    dgemma_error err = {0};
    ck_assert_int_eq(dgemma_prompt_create(&prompt, e, &opt, &err), DGEMMA_OK);
    ck_assert_uint_eq(picture_bytes(e), DOT_BYTES);
    ck_assert_int_eq((int)dgemma_prompt_length(prompt), apart[0].stats.n_prompt);
    opt = dgemma_request_defaults(e);
    opt.prompt = prompt;
    opt.max_tokens = 32;
    opt.max_denoise_steps = 3;
    for (int i = 0; i < N; i++) {
        opt.seed = (uint64_t)i;
        ck_assert_msg(dgemma_request_submit(&r[i], e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
        ck_assert_uint_eq(picture_bytes(e), DOT_BYTES);
    }
    dgemma_prompt_free(prompt); /* the requests have it */
    for (int i = 0; i < N; i++) {
        memset(&shared, 0, sizeof shared);
        for (dgemma_event event; dgemma_request_wait(r[i], &event, -1);) {
            on_event(&shared, &event);
            if (event.kind == DGEMMA_EVENT_END)
                shared.stats = event.stats;
        }
        ck_assert_int_eq(shared.stats.n_prompt, apart[i].stats.n_prompt);
        ck_assert_uint_eq(shared.n, apart[i].n);
        ck_assert_mem_eq(shared.ids, apart[i].ids, shared.n * sizeof *shared.ids);
    }
    ck_assert_uint_eq(picture_bytes(e), 0);
    for (int i = 0; i < N; i++)
        dgemma_request_free(r[i]);
    dgemma_engine_close(e);
}
END_TEST

/* The bound: for one request too much, for others as long as somebody has it. */
START_TEST(memory_of_pictures_is_bounded)
{
    dgemma_engine *e = open_with(2 * DOT_BYTES + DOT_BYTES / 2);
    dgemma_engine_counters c;
    dgemma_engine_count(e, &c);
    ck_assert_uint_eq(c.picture_bytes_total, 2 * DOT_BYTES + DOT_BYTES / 2);
    dgemma_request_options opt = about_dot(e);
    dgemma_media three[3] = {*opt.media, *opt.media, *opt.media};
    dgemma_error err = {0};
    dgemma_prompt *first = NULL, *second = NULL, *third = NULL;
    opt.media = three;
    opt.n_media = 3;
    ck_assert_int_eq(refused(e, &opt, "send fewer"), DGEMMA_E_LIMIT);
    ck_assert_uint_eq(picture_bytes(e), 0);
    opt.n_media = 1;
    ck_assert_int_eq(dgemma_prompt_create(&first, e, &opt, &err), DGEMMA_OK);
    ck_assert_int_eq(dgemma_prompt_create(&second, e, &opt, &err), DGEMMA_OK);
    ck_assert_int_eq(dgemma_prompt_create(&third, e, &opt, &err), DGEMMA_E_NOMEM);
    ck_assert_ptr_null(third);
    ck_assert_int_eq(refused(e, &opt, "try again later"), DGEMMA_E_NOMEM);
    ck_assert_uint_eq(picture_bytes(e), 2 * DOT_BYTES);
    dgemma_prompt_free(second);
    ck_assert_int_eq(dgemma_prompt_create(&third, e, &opt, &err), DGEMMA_OK);
    dgemma_prompt_free(third);
    dgemma_prompt_free(NULL);

    /* of one engine, and there after it */
    dgemma_engine *other = open_with(0);
    dgemma_request_options again = dgemma_request_defaults(other);
    again.prompt = first;
    ck_assert_int_eq(refused(other, &again, "another engine"), DGEMMA_E_ARG);
    again.chat_prompt = "x";
    ck_assert_int_eq(refused(e, &again, "more than one prompt"), DGEMMA_E_ARG);
    dgemma_engine_close(other);
    dgemma_engine_close(e);
    dgemma_prompt_free(first);
}
END_TEST

/* A GGUF model finds its tower beside it, or where it is told, and looks through it. */
START_TEST(towers_of_gguf_models)
{
    char dir[DG_TEST_PATH], model[DG_TEST_PATH], tower[DG_TEST_PATH];
    dgemma_error err = {0};
    dgemma_model_info info;
    dgemma_engine_options opt = dg_test_engine_defaults();
    ck_assert(dg_test_temp_make(dir));
    dg_buf file;
    dg_buf_init(&file, 16 << 20);
    ck_assert_int_eq(dg_file_read(&file, "tests/fixtures/gguf/tiny.gguf", NULL), DGEMMA_OK);
    ck_assert(dg_test_write_file(dir, "tiny.gguf", file.data, file.len));
    dg_buf_clear(&file);
    opt.model_path = dg_test_path(model, dir, "tiny.gguf");
    ck_assert_msg(dgemma_model_estimate(&info, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert(!info.has_vision);

    dg_test_tower how = {.cfg = {.present = true,
                                 .n_embd = 48,
                                 .n_ff = 80,
                                 .n_layer = 2,
                                 .n_head = 3,
                                 .head_dim = 16,
                                 .patch = 4,
                                 .pool = 3,
                                 .n_position = 96,
                                 .max_soft = 280,
                                 .standardize = true,
                                 .rms_eps = 1e-6f,
                                 .rope_theta = 100},
                         .n_text = 96,
                         .type = DG_F32};
    dg_test_write_mmproj(dg_test_path(tower, dir, "mmproj-tiny.gguf"), &how);
    dgemma_file *inspected;
    dgemma_vision_info vision;
    ck_assert_int_eq(dgemma_file_open(&inspected, model, &err), DGEMMA_OK);
    dgemma_file_vision(inspected, &vision);
    ck_assert_int_eq(vision.n_layer, 2);
    dgemma_file_close(inspected);
    for (int named = 0; named < 2; named++) {
        dgemma_engine *e = NULL;
        opt.mmproj = named ? tower : NULL;
        ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
        dgemma_engine_info(e, &info);
        ck_assert(info.has_vision);
        dgemma_request_options req = dgemma_request_defaults(e);
        dgemma_media picture_file = {.path = picture_path};
        static said s;
        req.chat_prompt = "What is it?";
        req.media = &picture_file;
        req.n_media = 1;
        req.image_tokens = 70;
        ask(e, &req, &s);
        ck_assert_int_eq(s.stats.n_pictures_encoded, 1);
        dgemma_engine_close(e);
    }
    opt.mmproj = model; /* not a tower */
    dgemma_engine *e = NULL;
    ck_assert_int_ne(dgemma_engine_open(&e, &opt, &err), DGEMMA_OK);
    dg_test_temp_remove(dir);
}
END_TEST

static void copy_file(const char *from, const char *dir, const char *name)
{
    dg_buf file;
    dg_buf_init(&file, 16 << 20);
    ck_assert_int_eq(dg_file_read(&file, from, NULL), DGEMMA_OK);
    ck_assert(dg_test_write_file(dir, name, file.data, file.len));
    dg_buf_clear(&file);
}

/* A folder of safetensors, or a document in it, is no file of a tower. */
START_TEST(a_named_tower_is_a_gguf_file)
{
    static const char *const wrong[] = {
        "tests/fixtures/golden/vision/model",
        "tests/fixtures/golden/vision/model/config.json",
    };
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = "tests/fixtures/gguf/tiny.gguf";
    for (size_t i = 0; i < 2; i++) {
        dgemma_model_info info;
        dgemma_error err = {0};
        opt.mmproj = wrong[i];
        ck_assert_int_eq(dgemma_model_estimate(&info, &opt, &err), DGEMMA_E_ARG);
        ck_assert_msg(strstr(err.msg, "not a GGUF file") != NULL, "%s", err.msg);
    }
}
END_TEST

/* What lies beside the model is not asked for: the text model loads all the same, and the reason is
 * there to be read. A file that was named must be right. */
START_TEST(a_tower_that_does_not_fit_is_ignored)
{
    char dir[DG_TEST_PATH], model[DG_TEST_PATH], tower[DG_TEST_PATH];
    ck_assert(dg_test_temp_make(dir));
    copy_file("tests/fixtures/gguf/tiny.gguf", dir, "tiny.gguf");
    dg_test_path(model, dir, "tiny.gguf");
    dg_test_path(tower, dir, "mmproj-other.gguf");
    for (int foreign = 0; foreign < 2; foreign++) {
        if (foreign)
            copy_file("tests/fixtures/gguf/tiny.gguf", dir, "mmproj-other.gguf");
        else
            ck_assert(dg_test_write_file(dir, "mmproj-other.gguf", "", 0));
        dgemma_error err = {0};
        dgemma_file *file;
        dgemma_vision_info vision;
        ck_assert_msg(dgemma_file_open(&file, model, &err) == DGEMMA_OK, "%s", err.msg);
        dgemma_file_vision(file, &vision);
        ck_assert_int_eq(vision.n_layer, 0);
        ck_assert(vision.ignored && strstr(vision.ignored, "mmproj-other.gguf"));
        dgemma_file_close(file);

        dgemma_engine *e = NULL;
        dgemma_model_info info;
        dgemma_engine_options opt = dg_test_engine_defaults();
        opt.model_path = model;
        ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
        dgemma_engine_info(e, &info);
        ck_assert(!info.has_vision);
        dgemma_engine_close(e);
        opt.mmproj = tower;
        ck_assert_int_ne(dgemma_model_estimate(&info, &opt, &err), DGEMMA_OK);
    }
    dg_test_temp_remove(dir);
}
END_TEST

/* A conversion that kept the config of the tower and dropped its weights: here they are under names
 * that nobody looks for. */
START_TEST(a_config_alone_is_no_tower)
{
    static const char tower[] = "encoder.vision_tower.", other[] = "encoder.vision_power.";
    char dir[DG_TEST_PATH];
    ck_assert(dg_test_temp_make(dir));
    copy_file("tests/fixtures/golden/vision/model/config.json", dir, "config.json");
    dg_buf weights;
    dg_buf_init(&weights, 16 << 20);
    ck_assert_int_eq(
        dg_file_read(&weights, "tests/fixtures/golden/vision/model/model.safetensors", NULL),
        DGEMMA_OK);
    for (size_t i = 0; i + sizeof tower <= weights.len; i++)
        if (!memcmp(weights.data + i, tower, sizeof tower - 1))
            memcpy(weights.data + i, other, sizeof other - 1);
    ck_assert(dg_test_write_file(dir, "model.safetensors", weights.data, weights.len));
    dg_buf_clear(&weights);

    dgemma_error err = {0};
    dgemma_engine *e = NULL;
    dgemma_model_info estimated, opened;
    dgemma_engine_options opt = dg_test_engine_defaults();
    opt.model_path = dir;
    ck_assert_msg(dgemma_model_estimate(&estimated, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    ck_assert_msg(dgemma_engine_open(&e, &opt, &err) == DGEMMA_OK, "%s", err.msg);
    dgemma_engine_info(e, &opened);
    ck_assert(!estimated.has_vision && !opened.has_vision);
    dgemma_engine_close(e);
    dg_test_temp_remove(dir);
}
END_TEST

/* Where a chunk would end inside a picture, it ends in front of it. */
START_TEST(blocks_are_never_cut)
{
    enum { N = 300, ROWS = 64 };
    tiny_model t;
    tiny_open(&t, &(tiny_options){.max_row = ROWS});
    int32_t *prompt = tiny_ids(&t, N, 3), feature[N];
    dg_span block[N];
    static const dg_span pictures[] = {{50, 90}, {100, 164}, {170, 171}, {250, 300}};
    for (int i = 0; i < N; i++) {
        block[i] = (dg_span){i, i + 1};
        feature[i] = -1;
        for (size_t k = 0; k < 4; k++)
            if (i >= pictures[k].first && i < pictures[k].end)
                block[i] = pictures[k];
    }
    dg_block_loop_config cfg = {.prompt = prompt,
                                .n_prompt = N,
                                .diffusion = {2, 0.4f, 0.8f, 0.1f, 1, 0.005f, 0},
                                .canvas_length = 16,
                                .max_tokens = 4,
                                .n_context = 512,
                                .block = block,
                                .feature = feature,
                                .draws = dg_draws_seeded(1, t.cfg.n_vocab),
                                .think_open = -1,
                                .think_close = -1,
                                .think_newline = -1,
                                .think_budget = -1};
    ck_assert_int_eq(dg_block_loop_longest_picture(&cfg), 64);
    dg_block_loop req;
    ck_assert_int_eq(dg_block_loop_init(&req, t.model, t.kv, &cfg, NULL), DGEMMA_OK);
    int at = 0;
    while (at < N) {
        dg_work work;
        dg_want want;
        dg_block_loop_want(&req, &want);
        dg_block_loop_plan(&req, &work, dg_grant_alone(&want, ROWS));
        ck_assert_int_gt(work.n_token, 0);
        at += work.n_token;
        if (at < N)
            ck_assert_int_eq(block[at].first, at);
        dgemma_error err = {0};
        ck_assert_msg(dg_forward_run(t.forward, &(dg_pass){.work = &work, .n_work = 1}, &err) ==
                          DGEMMA_OK,
                      "%s", err.msg);
        dg_block_loop_take(&req, NULL);
    }
    dg_block_loop_clear(&req);
    dg_free(prompt);
    tiny_close(&t);
}
END_TEST

/* The three rules of who sees whom in a picture's block, and that the engine takes them. */
START_TEST(image_rules)
{
    dg_span block = {10, 40}, text = {30, 31}, s;
    s = dg_encode_span(30, block, 8, DG_IMAGES_WHOLE);
    ck_assert(s.first == 10 && s.end == 40);
    s = dg_encode_span(30, block, 0, DG_IMAGES_WHOLE);
    ck_assert(s.first == 0 && s.end == 40);
    s = dg_encode_span(30, block, 8, DG_IMAGES_IN_WINDOW);
    ck_assert(s.first == 23 && s.end == 40);
    s = dg_encode_span(30, block, 0, DG_IMAGES_IN_WINDOW);
    ck_assert(s.first == 0 && s.end == 31);
    for (int rule = DG_IMAGES_WHOLE; rule <= DG_IMAGES_IN_WINDOW; rule++) {
        s = dg_encode_span(30, text, 8, (dg_image_rule)rule);
        ck_assert(s.first == 23 && s.end == 31);
    }

    /* a model that asks for it: each rule gives its own answer's first entropies */
    static const dgemma_image_attention rules[] = {DGEMMA_IMAGES_WHOLE, DGEMMA_IMAGES_IN_WINDOW,
                                                   DGEMMA_IMAGES_CAUSAL};
    said *a = calloc(3, sizeof *a);
    dgemma_media file = {.path = picture_path};
    static const int32_t prompt[] = {2, 20, 380, 21};
    for (int i = 0; i < 3; i++) {
        dgemma_engine_options eo = dg_test_engine_defaults();
        dgemma_engine *e = NULL;
        dgemma_error err = {0};
        eo.model_path = "tests/fixtures/golden/vision_generate/model";
        eo.image_attention = rules[i];
        ck_assert_msg(dgemma_engine_open(&e, &eo, &err) == DGEMMA_OK, "%s", err.msg);
        dgemma_request_options opt = dgemma_request_defaults(e);
        opt.tokens = prompt;
        opt.n_tokens = 4;
        opt.media = &file;
        opt.n_media = 1;
        ask(e, &opt, &a[i]);
        ck_assert_int_eq(a[i].stats.n_pictures, 1);
        dgemma_engine_close(e);
    }
    ck_assert(a[0].n != a[2].n || memcmp(a[0].ids, a[2].ids, a[0].n * sizeof *a[0].ids) != 0);
    ck_assert(a[1].n != a[2].n || memcmp(a[1].ids, a[2].ids, a[1].n * sizeof *a[1].ids) != 0);
    free(a);
}
END_TEST

Suite *pictures_suite(void)
{
    Suite *s = suite_create("pictures");
    TCase *t = tcase_create("pictures");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, base64_both_ways);
    tcase_add_test(t, base64_of_few_bytes);
    tcase_add_test(t, files_and_memory_are_the_same);
    tcase_add_test(t, a_conversation_looks_once);
    tcase_add_test(t, budgets_cost_what_they_say);
    tcase_add_test(t, wrong_pictures_are_refused);
    tcase_add_test(t, videos_are_frames_with_times);
    tcase_add_test(t, choices_share_a_prompt);
    tcase_add_test(t, memory_of_pictures_is_bounded);
    tcase_add_test(t, towers_of_gguf_models);
    tcase_add_test(t, a_named_tower_is_a_gguf_file);
    tcase_add_test(t, a_tower_that_does_not_fit_is_ignored);
    tcase_add_test(t, a_config_alone_is_no_tower);
    tcase_add_test(t, blocks_are_never_cut);
    tcase_add_test(t, image_rules);
    suite_add_tcase(s, t);
    return s;
}

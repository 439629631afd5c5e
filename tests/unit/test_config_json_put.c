/* config.json as it is made: what is read back is what was put in, in few digits. */
#include <string.h>
#include "base/buf.h"
#include "base/json_document.h"
#include "engine/loader.h"
#include "model/config_json_put.h"
#include "suites.h"

static const char pocket[] = "models/pocket/pocket.gguf";

static void load(dg_loaded *l)
{
    dgemma_error err = {0};
    ck_assert_msg(!dg_load(l, pocket, &err) && !dg_load_tower(l, NULL, &err), "%s", err.msg);
}

/* How many pairs a reader rotates, of heads of all sizes. */
START_TEST(every_pair_is_kept)
{
    static const int sizes[] = {6, 40, 96, 98, 100, 112, 194, 256, 322, 512};
    dg_loaded l;
    load(&l);
    dg_config cfg = l.cfg, back;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int n = 0; n <= sizes[i] / 2; n++) {
            dgemma_error err = {0};
            dg_buf text;
            dg_buf_init(&text, 1 << 20);
            for (int k = 0; k < cfg.n_layer; k++)
                if (!cfg.layer[k].sliding) {
                    cfg.layer[k].head_dim = sizes[i];
                    cfg.layer[k].n_rope_pair = n;
                }
            ck_assert_msg(!dg_config_json(&text, &cfg, &err), "%s", err.msg);
            ck_assert_msg(!dg_config_parse(&back, text.data, text.len, "made", &err), "%s",
                          err.msg);
            ck_assert_mem_eq(cfg.layer, back.layer, sizeof cfg.layer);
            ck_assert_msg(!strstr(text.data, "999999"), "%s", text.data);
            dg_buf_clear(&text);
        }
    }
    dg_loaded_clear(&l);
}
END_TEST

START_TEST(few_digits)
{
    dgemma_error err = {0};
    dg_buf text;
    dg_loaded l;
    load(&l);
    dg_buf_init(&text, 1 << 20);
    l.cfg.rms_eps = 1e-6f;
    ck_assert_msg(!dg_config_json(&text, &l.cfg, &err), "%s", err.msg);
    ck_assert_msg(strstr(text.data, "\"rms_norm_eps\": 1e-6,"), "%s", text.data);
    dg_buf_clear(&text);
    dg_loaded_clear(&l);
}
END_TEST

/* A number that needs more digits has them. */
START_TEST(all_digits)
{
    static const double values[] = {0.1, 1e-6, 1.0 / 3, 0.8333333333333334, 5e-324, 0.1 + 0.2};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        dg_buf text;
        dg_buf_init(&text, 1 << 10);
        ck_assert(!dg_json_document(&text, json_pack("{s:[f]}", "x", values[i]), "x", NULL));
        json_t *doc = json_loads(text.data, 0, NULL);
        ck_assert(json_real_value(json_array_get(json_object_get(doc, "x"), 0)) == values[i]);
        json_decref(doc);
        dg_buf_clear(&text);
    }
    ck_assert_int_eq(dg_json_document(NULL, NULL, "x", NULL), DGEMMA_E_UNSUPPORTED);
}
END_TEST

Suite *config_json_put_suite(void)
{
    Suite *s = suite_create("config_json_put");
    TCase *c = tcase_create("documents");
    tcase_add_test(c, every_pair_is_kept);
    tcase_add_test(c, few_digits);
    tcase_add_test(c, all_digits);
    suite_add_tcase(s, c);
    return s;
}

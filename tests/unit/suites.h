/* The unit test suites, one for each test_NAME.c; unit_main.c runs them. */
#ifndef DG_TESTS_SUITES_H
#define DG_TESTS_SUITES_H

#include <check.h>

Suite *base_suite(void);
Suite *utf8_suite(void);
Suite *rng_suite(void);
Suite *real_suite(void);
Suite *known_answers_suite(void);
Suite *pool_suite(void);
Suite *tensor_suite(void);
Suite *blocks_suite(void);
Suite *safetensors_suite(void);
Suite *checkpoint_suite(void);
Suite *gguf_suite(void);
Suite *gguf_model_suite(void);
Suite *config_suite(void);
Suite *tokenizer_suite(void);
Suite *tokenizer_json_suite(void);
Suite *chat_template_suite(void);
Suite *output_parser_suite(void);
Suite *stop_strings_suite(void);
Suite *image_suite(void);
Suite *preprocess_suite(void);
Suite *video_suite(void);
Suite *diffusion_suite(void);
Suite *settle_suite(void);
Suite *router_suite(void);
Suite *forward_suite(void);
Suite *equations_suite(void);
Suite *kv_cache_suite(void);
Suite *vocabulary_suite(void);
Suite *vision_suite(void);
Suite *block_loop_suite(void);
Suite *grants_suite(void);
Suite *request_suite(void);
Suite *sampling_suite(void);
Suite *tool_choice_suite(void);
Suite *api_suite(void);
Suite *pictures_suite(void);
Suite *scheduler_suite(void);
Suite *prefix_cache_suite(void);
Suite *hostile_suite(void);
Suite *out_of_memory_suite(void);
Suite *true_shape_suite(void);
Suite *synthetic_suite(void);
Suite *bench_suite(void);
Suite *pocket_checks_suite(void);
Suite *cells_suite(void);
Suite *chat_log_suite(void);
Suite *server_suite(void);
Suite *http_suite(void);
Suite *connection_suite(void);
Suite *dialects_suite(void);

#endif

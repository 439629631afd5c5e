/* The unit tests: every suite in one program, each test in a process of its own with a time limit,
 * so that a crash or a hang is one failure.
 *
 *   unit_tests                    all
 *   unit_tests SUITE [CASE]       some
 *   CK_FORK=no unit_tests …       in one process, for a debugger */
#include "suites.h"
#include <stdio.h>
#include <stdlib.h>
#include "support/skip.h"

typedef Suite *make_suite(void);

static make_suite *const suites[] = {
    base_suite,
    adapted_suite,
    adapters_suite,
    utf8_suite,
    rng_suite,
    pool_suite,
    tensor_suite,
    blocks_suite,
    safetensors_suite,
    checkpoint_suite,
    modules_suite,
    modules_model_suite,
    quantisation_suite,
    weights_suite,
    gguf_suite,
    gguf_model_suite,
    config_suite,
    tokenizer_suite,
    tokenizer_json_suite,
    chat_template_suite,
    output_parser_suite,
    output_calls_suite,
    stop_strings_suite,
    image_suite,
    preprocess_suite,
    video_suite,
    diffusion_suite,
    settle_suite,
    forward_suite,
    equations_suite,
    kv_cache_suite,
    vocabulary_suite,
    vision_suite,
    grants_suite,
    block_loop_suite,
    request_suite,
    sampling_suite,
    tool_choice_suite,
    api_suite,
    pictures_suite,
    hostile_suite,
    out_of_memory_suite,
    true_shape_suite,
    scheduler_suite,
    admission_suite,
    prefix_cache_suite,
    saved_prefix_suite,
    prefix_points_suite,
    pocket_checks_suite,
    cells_suite,
    chat_log_suite,
    server_suite,
    http_suite,
    connection_suite,
    dialects_suite,
    real_suite,
    known_answers_suite,
    synthetic_suite,
    bench_suite,
    router_suite,
    narrowed_suite,
    answer_suite,
    constraint_suite,
    constraint_cost_suite,
    calls_language_suite,
    word_suite,
    guide_suite,
    decide_layout_suite,
    schema_check_suite,
    infill_suite,
    questions_suite,
    deciding_suite,
    told_suite,
    asked_suite,
    tokens_suite,
    stream_suite,
    person_suite,
    guided_suite,
    answer_form_suite,
    attention_suite,
    byte_products_suite,
    reads_suite,
    decide_suite,
    pins_suite,
    batch_suite,
    multipart_suite,
    models_suite,
    models_folder_suite,
    replica_suite,
    blocks_narrow_suite,
    quantize_suite,
    quantize_rows_suite,
    mlx_suite,
    importance_suite,
    imatrix_suite,
    quantize_folder_suite,
    folder_rows_suite,
    mmproj_suite,
    compare_suite,
    config_json_put_suite,
    quantize_keys_suite,
};

int main(int argc, char **argv)
{
    setenv("CK_DEFAULT_TIMEOUT", "300", 0);
    dg_test_skip_init();

    SRunner *runner = srunner_create(NULL);
    for (size_t i = 0; i < sizeof suites / sizeof *suites; i++)
        srunner_add_suite(runner, suites[i]());

    srunner_run(runner, argc > 1 ? argv[1] : NULL, argc > 2 ? argv[2] : NULL, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    int skipped = dg_test_skip_count();
    int run = srunner_ntests_run(runner);
    srunner_free(runner);

    if (!run)
        fprintf(stderr, "there is no such suite or case\n");
    printf("%d passed, %d failed, %d skipped\n", run - failed - skipped, failed, skipped);
    return failed || !run ? EXIT_FAILURE : EXIT_SUCCESS;
}

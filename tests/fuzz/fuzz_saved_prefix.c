/* Arbitrary bytes as a file of saved keys and values, with the hash that they would need: what is
 * accepted is put into a cache, and can be saved again. The byte that the hash begins at says in
 * which type the cache keeps them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/common.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "engine/saved_prefix.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

/* Two layers, one that slides. */
static dg_kv_cache *make_cache(dg_dtype type)
{
    static dg_config cfg = {.n_layer = 2};
    dgemma_error err;
    dg_backend *be;
    dg_kv_cache *kv;
    cfg.layer[0] = (dg_layer_config){.sliding = true, .window = 80, .n_kv_head = 1, .head_dim = 4};
    cfg.layer[1] = (dg_layer_config){.n_kv_head = 1, .head_dim = 4};
    check(!dg_cpu_open(&be, &(dg_cpu_options){.n_thread = 1, .flags = dg_cpu_flags()}, &err));
    check(!dg_kv_cache_create(&kv, &cfg, be, type, 0, &err));
    check(!dg_kv_cache_limit(kv, 64 << 10, &err));
    return kv;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const dg_saved_maker maker = {.numerics = "", .n_vocab = 1000, .n_context = 2048};
    static const dg_dtype types[] = {DG_BF16, DG_F32, DG_Q8_0, DG_FP8};
    static dg_kv_cache *made[DG_COUNT(types)];
    dgemma_error err = {0};
    dg_saved_file file;
    dg_prefix_cache *cache;
    if (size < sizeof(uint64_t))
        return 0;
    const size_t which = data[size - sizeof(uint64_t)] % DG_COUNT(types);
    if (!made[which])
        made[which] = make_cache(types[which]);
    dg_kv_cache *kv = made[which];
    uint8_t *copy = malloc(size);
    check(copy != NULL);
    memcpy(copy, data, size);
    const uint64_t sum = XXH3_64bits(copy, size - sizeof sum);
    memcpy(copy + size - sizeof sum, &sum, sizeof sum);
    FILE *in = fmemopen(copy, size, "rb");
    check(in != NULL);
    if (dg_saved_read(&file, in, &maker, kv, &err)) {
        check(err.status && err.msg[0] && !file.file);
        free(copy);
        return 0;
    }
    check(!dg_prefix_cache_create(&cache, kv, 1 << 20, &err));
    if (!dg_saved_restore(&file, cache, NULL, &err)) {
        dg_prefix_point point[DG_SAVED_POINTS];
        int n = dg_prefix_conversation(cache, NULL, 0, point, DG_SAVED_POINTS);
        check(n == file.n_point && point[0].seq->n_token == file.n_token);
        for (int i = 0; i < n; i++)
            check(point[i].seq->n_token == file.point_tokens[i]);
    } else
        check(err.status && err.msg[0]);
    dg_prefix_cache_free(cache);
    check(dg_kv_bytes_held(kv) == 0);
    dg_saved_close(&file);
    free(copy);
    return 0;
}

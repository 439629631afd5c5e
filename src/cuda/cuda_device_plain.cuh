/* The instructions of cuda_device.cuh, which includes this, in plain C++ for the emulated device
 * (tests/cuda/emulated). */
#ifndef DG_CUDA_CUDA_DEVICE_PLAIN_CUH
#define DG_CUDA_CUDA_DEVICE_PLAIN_CUH

#define DG_LAUNCH(...)           emu_launch(__VA_ARGS__)
#define DG_LAUNCH_IF(early, ...) ((void)(early), emu_launch(__VA_ARGS__))
#define DG_SHARED(name)          unsigned char *const name = emu_shared()

static inline void dg_mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2], EMU_WHERE_ARG)
{
    emu_mma(c, a, b, false, EMU_WHERE);
}
static inline void dg_mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2], EMU_WHERE_ARG)
{
    emu_mma(c, a, b, true, EMU_WHERE);
}
static inline void dg_mma_tf32(float c[4], const uint32_t a[4], const uint32_t b[2], EMU_WHERE_ARG)
{
    emu_mma_tf32(c, a, b, EMU_WHERE);
}
static inline void dg_mma_s8(int c[4], const uint32_t a[4], const uint32_t b[2], EMU_WHERE_ARG)
{
    emu_mma_s8(c, a, b, false, EMU_WHERE);
}
static inline void dg_mma_u8s8(int c[4], const uint32_t a[4], const uint32_t b[2], EMU_WHERE_ARG)
{
    emu_mma_s8(c, a, b, true, EMU_WHERE);
}
static inline void dg_ldmatrix_x4(uint32_t r[4], const void *row, EMU_WHERE_ARG)
{
    emu_ldmatrix(r, 4, false, row, EMU_WHERE);
}
static inline void dg_ldmatrix_x4_trans(uint32_t r[4], const void *row, EMU_WHERE_ARG)
{
    emu_ldmatrix(r, 4, true, row, EMU_WHERE);
}
static inline void dg_ldmatrix_x2(uint32_t r[2], const void *row, EMU_WHERE_ARG)
{
    emu_ldmatrix(r, 2, false, row, EMU_WHERE);
}
static inline void dg_ldmatrix_x2_trans(uint32_t r[2], const void *row, EMU_WHERE_ARG)
{
    emu_ldmatrix(r, 2, true, row, EMU_WHERE);
}
static inline void dg_cp_async16(void *shared, const void *global, EMU_WHERE_ARG)
{
    emu_cp_async(shared, global, 16, 16, EMU_WHERE);
}
static inline void dg_cp_async16_if(void *shared, const void *global, bool valid, EMU_WHERE_ARG)
{
    emu_cp_async(shared, global, 16, valid ? 16 : 0, EMU_WHERE);
}
static inline void dg_cp_async_commit(void)
{
    emu_cp_async_commit();
}
template <int N_LEFT> static inline void dg_cp_async_wait(void)
{
    emu_cp_async_wait(N_LEFT);
}
static inline void dg_mbar_init(uint64_t *bar, int count, EMU_WHERE_ARG)
{
    emu_mbar_init(bar, count, EMU_WHERE);
}
static inline void dg_mbar_init_fence(void)
{
}
static inline void dg_mbar_arrive(uint64_t *bar, EMU_WHERE_ARG)
{
    emu_mbar_arrive(bar, 0, EMU_WHERE);
}
static inline void dg_mbar_arrive_after(uint64_t *bar, uint32_t, EMU_WHERE_ARG)
{
    emu_mbar_arrive(bar, 0, EMU_WHERE);
}
static inline void dg_mbar_expect(uint64_t *bar, uint32_t bytes, EMU_WHERE_ARG)
{
    emu_mbar_arrive(bar, (int)bytes, EMU_WHERE);
}
static inline void dg_mbar_wait(uint64_t *bar, int parity, EMU_WHERE_ARG)
{
    emu_mbar_wait(bar, parity, EMU_WHERE);
}
static inline void dg_cp_async_mbar_arrive(uint64_t *bar, EMU_WHERE_ARG)
{
    emu_cp_async_commit();
    emu_cp_async_wait(0);
    emu_mbar_arrive(bar, 0, EMU_WHERE);
}
template <bool ONCE = false>
static inline void dg_bulk_g2s(void *shared, const void *global, uint32_t bytes, uint64_t *bar,
                               EMU_WHERE_ARG)
{
    emu_bulk_g2s(shared, global, bytes, bar, EMU_WHERE);
}
typedef emu_tensor_map dg_tensor_map;
static inline cudaError_t dg_tensor_map_make(dg_tensor_map *map, const void *data, int n_dim,
                                             const int *size, const size_t *stride, const int *box,
                                             bool swapped)
{
    bool good = (uintptr_t)data % 16 == 0 && box[0] == 64;
    *map = dg_tensor_map{(const unsigned char *)data, {}, {}, {}, swapped};
    for (int d = 0; d < EMU_DIMS; d++) {
        map->size[d] = d < n_dim ? size[d] : 1;
        map->box[d] = d < n_dim ? box[d] : 1;
        map->stride[d] = d > 0 && d < n_dim ? (long)stride[d - 1] : 0;
        good &= map->box[d] > 0 && map->box[d] <= 256 && map->stride[d] % 16 == 0 &&
                map->stride[d] >> 40 == 0;
    }
    return good ? cudaSuccess : cudaErrorInvalidValue;
}
static inline void dg_tensor_prefetch(const dg_tensor_map &)
{
}
static inline void dg_tensor_g2s(void *shared, const dg_tensor_map &map, int k, int row,
                                 uint64_t *bar, EMU_WHERE_ARG)
{
    int at[EMU_DIMS] = {k, row};
    emu_box_g2s(shared, &map, at, bar, EMU_WHERE);
}
static inline void dg_await_count(const uint32_t *counter, uint32_t target, EMU_WHERE_ARG)
{
    emu_await_count(counter, target, EMU_WHERE);
}
static inline void dg_bar_sync(int id, int n_thread, EMU_WHERE_ARG)
{
    emu_barrier(id, n_thread, true, 0, EMU_WHERE);
}
static inline void dg_bar_arrive(int id, int n_thread, EMU_WHERE_ARG)
{
    emu_barrier(id, n_thread, false, 0, EMU_WHERE);
}
static inline void dg_grid_wait(void)
{
}
static inline void dg_grid_launch_next(void)
{
}
static inline uint32_t dg_pack_bf16(float low, float high)
{
    float value[2] = {low, high};
    uint32_t pair = 0;
    for (int i = 0; i < 2; i++) {
        uint32_t bits = __float_as_uint(value[i]);
        uint32_t rounded =
            value[i] != value[i] ? 0x7FFFu : (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
        pair |= rounded << 16 * i;
    }
    return pair;
}
static inline uint32_t dg_pack_f16(float low, float high)
{
    return (uint32_t)emu_float_to_half(high) << 16 | emu_float_to_half(low);
}
static inline uint32_t dg_pack_e4m3(float low, float high)
{
    return dg_float_to_e4m3(low) | (uint32_t)dg_float_to_e4m3(high) << 8;
}
static inline uint32_t dg_e4m3_pair(uint32_t bytes)
{
    uint32_t pair = 0;
    for (int i = 0; i < 2; i++)
        pair |= (uint32_t)emu_float_to_half(dg_e4m3_to_float((uint8_t)(bytes >> 8 * i))) << 16 * i;
    return pair;
}
static inline float dg_f16_at(uint16_t bits)
{
    return emu_half_to_float(bits);
}
static inline uint32_t dg_e4m3_of_halves(uint32_t low, uint32_t high)
{
    uint32_t pair[2] = {low, high}, bytes = 0;
    for (int i = 0; i < 4; i++)
        bytes |= (uint32_t)dg_float_to_e4m3(dg_f16_at((uint16_t)(pair[i / 2] >> i % 2 * 16)))
                 << 8 * i;
    return bytes;
}
static inline uint32_t dg_half2_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d = 0;
    for (int i = 0; i < 32; i += 16) {
        double product = (double)dg_f16_at((uint16_t)(a >> i)) * dg_f16_at((uint16_t)(b >> i));
        d |= (uint32_t)emu_double_to_half(product + dg_f16_at((uint16_t)(c >> i))) << i;
    }
    return d;
}
static inline uint32_t dg_half2_mul(uint32_t a, uint32_t b)
{
    uint32_t d = 0;
    for (int i = 0; i < 32; i += 16) {
        double product = (double)dg_f16_at((uint16_t)(a >> i)) * dg_f16_at((uint16_t)(b >> i));
        d |= (uint32_t)emu_double_to_half(product) << i;
    }
    return d;
}
static inline uint32_t dg_bf162_mul(uint32_t a, uint32_t b)
{
    uint32_t d = 0;
    for (int i = 0; i < 32; i += 16) {
        float x = __int_as_float((int)((a >> i) << 16)), y = __int_as_float((int)((b >> i) << 16));
        d |= (dg_pack_bf16(x * y, 0) & 0xFFFFu) << i;
    }
    return d;
}
static inline uint32_t dg_half2_add(uint32_t a, uint32_t b)
{
    return dg_half2_fma(a, 0x3C003C00u, b);
}
static inline uint32_t dg_half2_sub(uint32_t a, uint32_t b)
{
    return dg_half2_fma(b, 0xBC00BC00u, a);
}
template <int TABLE> static inline uint32_t dg_lop3(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d = 0;
    for (int i = 0; i < 8; i++)
        if (TABLE >> i & 1)
            d |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return d;
}
static inline float dg_exp2_fast(float x)
{
    return exp2f(x);
}

#endif

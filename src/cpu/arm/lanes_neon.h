/* Eight floats, and eight doubles, in NEON registers: the operations that cpu/vector_body.h is
 * written in. cpu/x86/lanes_avx2.h offers the same ones, with the same results bit for bit. */
#ifndef DG_CPU_ARM_LANES_NEON_H
#define DG_CPU_ARM_LANES_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct f8 {
    float32x4_t v[2];
} f8;

typedef struct d8 {
    float64x2_t v[4];
} d8;

#define F8(op, ...) ((f8){{op(0, __VA_ARGS__), op(1, __VA_ARGS__)}})
#define D8(op, ...)                                                                                \
    ((d8){{op(0, __VA_ARGS__), op(1, __VA_ARGS__), op(2, __VA_ARGS__), op(3, __VA_ARGS__)}})
#define AT1(i, f, a)       f((a).v[i])
#define AT2(i, f, a, b)    f((a).v[i], (b).v[i])
#define AT3(i, f, a, b, c) f((a).v[i], (b).v[i], (c).v[i])

static inline f8 f8_set(float x)
{
    return (f8){{vdupq_n_f32(x), vdupq_n_f32(x)}};
}

/* Loads and stores go by bytes: no alignment is needed. */
static inline f8 f8_load_f32(const void *p)
{
    const uint8_t *b = p;
    return (f8){{vreinterpretq_f32_u8(vld1q_u8(b)), vreinterpretq_f32_u8(vld1q_u8(b + 16))}};
}

static inline void f8_store_f32(void *p, f8 a)
{
    uint8_t *b = p;
    vst1q_u8(b, vreinterpretq_u8_f32(a.v[0]));
    vst1q_u8(b + 16, vreinterpretq_u8_f32(a.v[1]));
}

static inline f8 f8_load_bf16(const void *p)
{
    uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(p)), zero = vdupq_n_u16(0);
    return (f8){
        {vreinterpretq_f32_u16(vzip1q_u16(zero, h)), vreinterpretq_f32_u16(vzip2q_u16(zero, h))}};
}

/* Nearest even in the upper half of the word; NaN keeps its upper half and is made quiet. */
static inline uint16x4_t bf16_of(float32x4_t a)
{
    uint32x4_t bits = vreinterpretq_u32_f32(a), upper = vshrq_n_u32(bits, 16);
    uint32x4_t odd = vandq_u32(upper, vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7FFF)), odd);
    uint32x4_t quiet = vorrq_u32(upper, vdupq_n_u32(0x40));
    return vmovn_u32(vbslq_u32(vceqq_f32(a, a), vshrq_n_u32(rounded, 16), quiet));
}

static inline void f8_store_bf16(void *p, f8 a)
{
    vst1q_u8(p, vreinterpretq_u8_u16(vcombine_u16(bf16_of(a.v[0]), bf16_of(a.v[1]))));
}

static inline f8 f8_load_f16(const void *p)
{
    float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(p));
    return (f8){{vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)}};
}

static inline void f8_store_f16(void *p, f8 a)
{
    vst1q_u8(p, vreinterpretq_u8_f16(vcvt_high_f16_f32(vcvt_f16_f32(a.v[0]), a.v[1])));
}

static inline float float_of_f16(uint16_t bits)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits))), 0);
}

static inline f8 f8_load_i8(const int8_t *p)
{
    int16x8_t h = vmovl_s8(vld1_s8(p));
    return (f8){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(h))), vcvtq_f32_s32(vmovl_high_s16(h))}};
}

/* Sixteen numbers below 16 become what the table has for them; out may be n. */
static inline void i8_look_up(int8_t *out, const int8_t *n, const int8_t table[16])
{
    vst1q_s8(out, vqtbl1q_s8(vld1q_s8(table), vreinterpretq_u8_s8(vld1q_s8(n))));
}

/* Sixteen rows of sixteen bytes become columns; rows of out are `stride` bytes apart. */
static inline void i8_turn16(int8_t *out, size_t stride, const int8_t *in)
{
    uint8x16_t a[16], b[16];
    for (int i = 0; i < 16; i++)
        a[i] = vld1q_u8((const uint8_t *)in + 16 * i);
    for (int round = 0; round < 4; round++) { /* each one brings rows i and i + 8 together */
        for (int i = 0; i < 8; i++) {
            b[2 * i] = vzip1q_u8(a[i], a[i + 8]);
            b[2 * i + 1] = vzip2q_u8(a[i], a[i + 8]);
        }
        for (int i = 0; i < 16; i++)
            a[i] = b[i];
    }
    for (int i = 0; i < 16; i++)
        vst1q_u8((uint8_t *)out + (size_t)i * stride, a[i]);
}

static inline f8 f8_sub(f8 a, f8 b)
{
    return F8(AT2, vsubq_f32, a, b);
}

static inline f8 f8_mul(f8 a, f8 b)
{
    return F8(AT2, vmulq_f32, a, b);
}

static inline f8 f8_div(f8 a, f8 b)
{
    return F8(AT2, vdivq_f32, a, b);
}

/* a * b + c, one rounding. */
static inline f8 f8_fma(f8 a, f8 b, f8 c)
{
    return F8(AT3, vfmaq_f32, c, a, b);
}

/* c - a * b, one rounding. */
static inline f8 f8_fnma(f8 a, f8 b, f8 c)
{
    return F8(AT3, vfmsq_f32, c, a, b);
}

/* The larger one; `so_far` where a is NaN. */
static inline f8 f8_max(f8 so_far, f8 a)
{
    return F8(AT2, vmaxnmq_f32, so_far, a);
}

static inline bool f8_any_equal(f8 a, f8 b)
{
    return vmaxvq_u32(vorrq_u32(vceqq_f32(a.v[0], b.v[0]), vceqq_f32(a.v[1], b.v[1]))) != 0;
}

static inline void transpose4(float32x4_t *r0, float32x4_t *r1, float32x4_t *r2, float32x4_t *r3)
{
    float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(*r0, *r1));
    float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(*r0, *r1));
    float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(*r2, *r3));
    float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(*r2, *r3));
    *r0 = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    *r1 = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    *r2 = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    *r3 = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

/* Eight rows of eight become eight columns. */
static inline void f8_transpose(f8 r[8])
{
    transpose4(&r[0].v[0], &r[1].v[0], &r[2].v[0], &r[3].v[0]);
    transpose4(&r[4].v[0], &r[5].v[0], &r[6].v[0], &r[7].v[0]);
    transpose4(&r[0].v[1], &r[1].v[1], &r[2].v[1], &r[3].v[1]);
    transpose4(&r[4].v[1], &r[5].v[1], &r[6].v[1], &r[7].v[1]);
    for (int i = 0; i < 4; i++) {
        float32x4_t corner = r[i].v[1];
        r[i].v[1] = r[i + 4].v[0];
        r[i + 4].v[0] = corner;
    }
}

static inline d8 d8_set(double x)
{
    float64x2_t v = vdupq_n_f64(x);
    return (d8){{v, v, v, v}};
}

static inline d8 d8_widen(f8 a)
{
    return (d8){{vcvt_f64_f32(vget_low_f32(a.v[0])), vcvt_high_f64_f32(a.v[0]),
                 vcvt_f64_f32(vget_low_f32(a.v[1])), vcvt_high_f64_f32(a.v[1])}};
}

static inline f8 d8_narrow(d8 a)
{
    return (f8){{vcvt_high_f32_f64(vcvt_f32_f64(a.v[0]), a.v[1]),
                 vcvt_high_f32_f64(vcvt_f32_f64(a.v[2]), a.v[3])}};
}

static inline d8 d8_add(d8 a, d8 b)
{
    return D8(AT2, vaddq_f64, a, b);
}

static inline d8 d8_sub(d8 a, d8 b)
{
    return D8(AT2, vsubq_f64, a, b);
}

static inline d8 d8_mul(d8 a, d8 b)
{
    return D8(AT2, vmulq_f64, a, b);
}

static inline d8 d8_div(d8 a, d8 b)
{
    return D8(AT2, vdivq_f64, a, b);
}

/* a * b + c, one rounding. */
static inline d8 d8_fma(d8 a, d8 b, d8 c)
{
    return D8(AT3, vfmaq_f64, c, a, b);
}

/* a within [low, high]; NaN stays NaN. */
static inline d8 d8_clamp(d8 a, double low, double high)
{
    return D8(AT2, vminq_f64, D8(AT2, vmaxq_f64, a, d8_set(low)), d8_set(high));
}

static inline d8 d8_abs(d8 a)
{
    return D8(AT1, vabsq_f64, a);
}

static inline float64x2_t copysign2(float64x2_t size, float64x2_t sign)
{
    return vbslq_f64(vdupq_n_u64(UINT64_C(1) << 63), sign, size);
}

static inline d8 d8_copysign(d8 size, d8 sign)
{
    return D8(AT2, copysign2, size, sign);
}

static inline float64x2_t zero_below2(float64x2_t a, float64x2_t limit)
{
    return vreinterpretq_f64_u64(vbicq_u64(vreinterpretq_u64_f64(a), vcltq_f64(a, limit)));
}

/* a, or 0 where a < limit; NaN stays NaN. */
static inline d8 d8_zero_below(d8 a, double limit)
{
    return D8(AT2, zero_below2, a, d8_set(limit));
}

static inline float64x2_t pow2_low2(float64x2_t a)
{
    uint64x2_t exponent = vshlq_n_u64(vreinterpretq_u64_f64(a), 52);
    return vreinterpretq_f64_u64(vaddq_u64(exponent, vreinterpretq_u64_f64(vdupq_n_f64(1))));
}

/* 2^n for the whole number n in the lowest bits of a; infinity for n = 1024. */
static inline d8 d8_pow2_low(d8 a)
{
    return D8(AT1, pow2_low2, a);
}

/* The sum of all lanes; its order is part of the result. */
static inline double d8_sum(d8 a)
{
    float64x2_t even = vaddq_f64(a.v[0], a.v[2]), odd = vaddq_f64(a.v[1], a.v[3]);
    float64x2_t both = vaddq_f64(even, odd);
    return vgetq_lane_f64(both, 0) + vgetq_lane_f64(both, 1);
}

#undef F8
#undef D8
#undef AT1
#undef AT2
#undef AT3

#endif

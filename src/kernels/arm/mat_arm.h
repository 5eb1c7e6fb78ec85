/* mat_arm.h: what the products for 64-bit Arm share, at all levels.
 *
 * Vectors are shifted and masked with the compiler's operators, which take any shift and become the
 * instructions with an immediate one where it is known. */
#ifndef KERNELS_ARM_MAT_ARM_H
#define KERNELS_ARM_MAT_ARM_H

#include <arm_neon.h>

#include "kernels/mat.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The parts of kernels_mat_neon, kernels_mat_dotprod, kernels_mat_i8mm. */
void kernels_mat_neon_float(struct kernels *k);
void kernels_mat_neon_gemv(struct kernels *k);
void kernels_mat_neon_gemm(struct kernels *k);
void kernels_mat_dotprod_gemv(struct kernels *k);
void kernels_mat_dotprod_gemm(struct kernels *k);

/* Lane r: sum of the four lanes of v[r]. */
ALWAYS_INLINE int32x4_t sum_lanes4(const int32x4_t v[4])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

/* Four binary16 numbers as floats (exact). */
ALWAYS_INLINE float32x4_t widen_f16(uint16x4_t v)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(v));
}

ALWAYS_INLINE uint16_t load_u16(const void *p)
{
    uint16_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE uint32_t load_u32(const void *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE void prefetch_bytes(const uint8_t *p, int bytes)
{
#pragma GCC unroll 32
    for (int i = 0; i < bytes; i += 64)
        __builtin_prefetch(p + i);
}

/* Rows are taken in groups of four, one per float lane. While one group is multiplied, a coming
 * group is prefetched whole and in address order: that keeps the DRAM page streams few, where a
 * prefetch per row would open four. How far ahead: whole groups, at least this many bytes, as on
 * x86 (not measured on Arm; the L1 of small cores has 32 KiB). */
#define PREFETCH_AHEAD ((size_t)16 << 10)

/* Where to prefetch while the group at w + at is in work; NULL near the end of the rows. */
ALWAYS_INLINE const uint8_t *prefetch_from(const struct mat_args *a, size_t at, size_t group_bytes)
{
    const size_t ahead = (PREFETCH_AHEAD + group_bytes - 1) / group_bytes * group_bytes;
    const size_t from = at + ahead;

    return from + group_bytes <= (size_t)a->n_rows * a->row_bytes ? a->w + from : NULL;
}

/* Four rows of weights, stride bytes apart (0: four times the same row, for what is left over),
 * against the packed activations of one token; lane r of the result belongs to row r. */
struct row_group {
    const uint8_t *w;
    size_t stride;
    const void *x;
    int n_blocks;
    const uint8_t *prefetch;
};
typedef float32x4_t gemv_group_fn(const struct row_group *g);

/* All rows, for one token or a few: those share the cached rows of a group. When the number of rows
 * is no multiple of four the last group overlaps the one before it: a row gives the same bytes in
 * any lane. */
ALWAYS_INLINE void gemv_rows(const struct mat_args *a, int block_values, gemv_group_fn *group)
{
    const bool few = a->n_rows < 4; /* row by row */
    struct row_group g = {NULL, few ? 0 : a->row_bytes, NULL, a->n_cols / block_values, NULL};

    for (int r = 0; r < a->n_rows; r += few ? 1 : 4) {
        const int first = few || r + 4 <= a->n_rows ? r : a->n_rows - 4;
        const size_t at = (size_t)first * a->row_bytes;
        float *y = a->y + first;
        g.w = a->w + at;
        g.x = a->x;
        g.prefetch = few ? NULL : prefetch_from(a, at, 4 * a->row_bytes);
        for (int t = 0; t < a->n_tok; t++, y += a->y_stride) {
            const float32x4_t sums = group(&g);
            if (few)
                *y = sums[0];
            else
                vst1q_f32(y, sums);
            g.x = (const uint8_t *)g.x + a->x_stride;
            g.prefetch = NULL;
        }
    }
}

/* How many tokens' activations fit into the L2 cache beside the weights; at least least. */
ALWAYS_INLINE int tokens_in_cache(size_t x_stride, int least)
{
    const size_t budget = (size_t)128 << 10; /* small cores share 256 KiB and more */

    return x_stride * (size_t)least >= budget ? least
                                              : (int)(budget / (x_stride > 64 ? x_stride : 64));
}

#endif

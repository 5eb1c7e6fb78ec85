/* mat_amx.c: GEMM by matrix instructions (mat_tiles.h) for types with blocks of 256 values; all
 * else of the level AMX is AVX-512 VNNI's, which blocks of 32 leave little to gain
 * (docs/experiments.md).
 *
 * Sixteen rows, as mat_wide.h transposes them (dword i of every row side by side), are what the
 * instructions take as their right operand; packed activations are the left one as they lie: a
 * chunk of up to sixteen tokens. An instruction adds up 64 values, of several scales, so the
 * weights are multiplied first, and the products v = (weight - bias) * scale cut into bytes, v =
 * high * 2^n + low. Then isum = sum v * q over the block is 2^n * sum high * q + sum low * q: all
 * exact, the sum of low ones at most 256 * 255 * 127 = 8,290,560, the whole what the definition's
 * is (docs/arithmetic.md). The floats are the definition's too: add_k_block, blocks in rising
 * order.
 *
 * Without a bias the scale is cut instead, n = 3: weight * (scale % 8) and weight * (scale / 8) are
 * at most 31 * 7 = 217 (Q5_K), so that a multiplication of words does two bytes. With a bias v is
 * made as a 16-bit number, n = 8, low unsigned and high signed. */
#define MAT_LANES 16
#define MAT_VNNI  1

#include "kernels/levels.h"
#include "kernels/x86/mat_wide_table.h"

#ifdef MAT_TILES_EMULATED
#include MAT_TILES_EMULATED
#else
#include "kernels/x86/mat_tiles.h"
#endif

/* Fewer tokens are left to the level below: multiplying the weights would not pay (measured). */
#define LEAST_TOKENS 16

/* A block of sixteen rows: dword i of every row. */
struct halves {
    vint low[64], high[64];
    struct k_head k;
};

/* Takes the weights as they come from a block. */
struct sink_halves {
    struct k_type type;
    bool is_wide; /* there are high halves */
    const uint8_t *ahead;
    /* Per group: scales at even bytes and at odd ones, the others 0, and bias * scale as int16; or
     * without a bias scale % 8 and scale / 8 (all of it and nothing, where it is not cut) as int16.
     */
    vint even[16], odd[16], bias[16];
    struct halves *to;
};

/* |weight * scale| is at most 241 * 32 = 7712 (IQ4_XS, weights + 128), (weight - bias) * scale at
 * most 4096 (Q6_K; IQ4_XS 4064). */
ALWAYS_INLINE void emit_halves(void *p, int i, vint w, bool in_place)
{
    struct sink_halves *s = p;
    const int g = i * 4 / s->type.group;

    w = prefetch_part(w, s->ahead, s->type.block_bytes, i, 64);
    if (in_place)
        w = _mm512_srli_epi16(w, 4);
    if (!s->type.bias) {
        s->to->low[i] = _mm512_mullo_epi16(w, s->even[g]);
        if (s->is_wide)
            s->to->high[i] = _mm512_mullo_epi16(w, s->odd[g]);
    } else {
        const vint upper = _mm512_set1_epi16((short)0xff00);
        const vint e = _mm512_sub_epi16(_mm512_maddubs_epi16(w, s->even[g]), s->bias[g]);
        const vint o = _mm512_sub_epi16(_mm512_maddubs_epi16(w, s->odd[g]), s->bias[g]);
        /* bytes of the first where upper is 0, else of the second */
        s->to->low[i] = _mm512_ternarylogic_epi32(e, _mm512_bslli_epi128(o, 1), upper, 0xd8);
        s->to->high[i] = _mm512_ternarylogic_epi32(_mm512_srli_epi16(e, 8), o, upper, 0xd8);
    }
}

ALWAYS_INLINE void unpack_halves(const struct lanes *l, const uint8_t *ahead,
                                 const struct k_type type, bool is_wide, struct halves *to)
{
    struct sink_halves s = {.type = type, .is_wide = is_wide, .ahead = ahead, .to = to};

    type.head(l, &to->k);
#pragma GCC unroll 16
    for (int g = 0; g < 256 / type.group; g++) {
        const vint byte = v_and(to->k.scale[g], v_dwords(255));
        const vint scale = v_or(byte, _mm512_slli_epi32(byte, 16));
        if (type.bias) {
            s.even[g] = scale;
            s.odd[g] = _mm512_slli_epi32(scale, 8);
            /* times 2^8 already */
            s.bias[g] = _mm512_srai_epi16(s.odd[g], 8 - __builtin_ctz((unsigned)type.bias));
        } else {
            s.even[g] = is_wide ? v_and(scale, _mm512_set1_epi16(7)) : scale;
            s.odd[g] = _mm512_srli_epi16(scale, 3);
        }
    }
    type.walk(l, emit_halves, &s);
}

/* ---- tiles: 0 to 3 are sums, 4 activations, 6 and 7 weights ---- */

/* Some tokens in a row. */
struct chunk {
    int first, n, done; /* the first `done` of them have been computed before */
};

/* Tokens per chunk, as even as can be. */
ALWAYS_INLINE int chunk_rows(int n_tok)
{
    const int n_chunks = (n_tok + TILE_ROWS - 1) / TILE_ROWS;

    return (n_tok + n_chunks - 1) / n_chunks;
}

/* Chunk i of n_tok tokens, `rows` each: the last one reaches back. */
ALWAYS_INLINE struct chunk chunk_at(int i, int n_tok, int rows)
{
    const int first = i * rows, last = n_tok - rows;

    return first <= last ? (struct chunk){first, rows, 0}
                         : (struct chunk){last, rows, first - last};
}

/* For chunks of so many tokens. */
static void configure_tiles(int rows)
{
    struct tile_shapes s = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        s.row_bytes[i] = 64;
        s.rows[i] = (uint8_t)(i < 6 ? rows : TILE_ROWS);
    }
    TILES_CONFIGURE(&s);
}

/* What tiles 0 to 3 held. */
struct tile_sums {
    _Alignas(64) int32_t at[4][TILE_ROWS][MAT_LANES];
};

/* 64 values of a chunk against a group of rows: to_low and to_high are the tiles of its sums. */
#define DOT_GROUP(step, group, to_low, to_high)                                                    \
    do {                                                                                           \
        TILE_LOAD(6, t[group].low + 16 * (step), 64);                                              \
        TILE_DOT_SU(to_low, 4, 6);                                                                 \
        if (is_wide) {                                                                             \
            TILE_LOAD(7, t[group].high + 16 * (step), 64);                                         \
            if (type.bias)                                                                         \
                TILE_DOT_SS(to_high, 4, 7);                                                        \
            else                                                                                   \
                TILE_DOT_SU(to_high, 4, 7);                                                        \
        }                                                                                          \
    } while (0)

/* Part `step` of 4 of a chunk against n_g groups of rows. */
ALWAYS_INLINE void dot_step(const struct halves *t, const struct tokens *tok, struct chunk c,
                            int step, const int n_g, const struct k_type type, bool is_wide)
{
    TILE_LOAD(4, tok->x + (size_t)c.first * tok->x_stride + 64 * step, tok->x_stride);
    DOT_GROUP(step, 0, 0, 1);
    if (n_g == 2)
        DOT_GROUP(step, 1, 2, 3);
}

ALWAYS_INLINE void store_sums(struct tile_sums *s, const int n_g, bool is_wide)
{
    TILE_STORE(0, s->at[0], 64);
    if (is_wide)
        TILE_STORE(1, s->at[1], 64);
    if (n_g == 2) {
        TILE_STORE(2, s->at[2], 64);
        if (is_wide)
            TILE_STORE(3, s->at[3], 64);
    }
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
}

/* Part `step` of 4 of a chunk's sums into its tokens' accumulators. */
ALWAYS_INLINE void add_step(const struct halves *t, const struct tokens *tok, struct chunk c,
                            int step, const struct tile_sums *s, const int n_g,
                            const struct k_type type, bool is_wide)
{
    const int n = c.n - c.done, end = c.done + n * (step + 1) / 4;

    for (int i = c.done + n * step / 4; i < end; i++) {
        const size_t k = (size_t)(c.first + i);
        const struct act_q256 *x = (const void *)(tok->x + k * tok->x_stride);
        union k_sums sums;

        if (type.minima)
            pair_sums(x, type.group, &sums);
#pragma GCC unroll 2
        for (int g = 0; g < n_g; g++) {
            vint isum = _mm512_load_si512(s->at[2 * g][i]);
            if (is_wide)
                isum = v_add(isum, _mm512_slli_epi32(_mm512_load_si512(s->at[2 * g + 1][i]),
                                                     type.bias ? 8 : 3));
            _mm512_store_ps(ACC(tok, k, g), add_k_block(_mm512_load_ps(ACC(tok, k, g)), &t[g].k,
                                                        isum, &sums, x->d, type));
        }
    }
}

/* n_tok tokens against n_g groups of rows. While the tiles multiply one chunk the sums of the one
 * before become floats, in turns that a reorder buffer can hold. */
ALWAYS_INLINE void mul_halves(const struct halves *t, const struct tokens *tok, const int n_g,
                              int n_tok, int rows, const struct k_type type, bool is_wide)
{
    struct chunk before = {0}, c = chunk_at(0, n_tok, rows);
    struct tile_sums sums;

    for (int i = 1;; i++) {
        for (int step = 0; step < 4; step++) {
            dot_step(t, tok, c, step, n_g, type, is_wide);
            add_step(t, tok, before, step, &sums, n_g, type, is_wide);
        }
        store_sums(&sums, n_g, is_wide);
        before = c;
        if (c.first + c.n == n_tok)
            break;
        c = chunk_at(i, n_tok, rows);
    }
    for (int step = 0; step < 4; step++)
        add_step(t, tok, before, step, &sums, n_g, type, is_wide);
}

/* One or two groups of rows for a run of tokens, into acc: as gemm_groups. */
ALWAYS_INLINE void groups_halves(const struct gemm_pass *p, float *acc, const struct k_type type,
                                 bool is_wide)
{
    const struct mat_args *a = p->a;
    const int rows = chunk_rows(p->n_tok);
    const uint8_t *ahead = p->prefetch;
    struct tokens tok = {a->x + (size_t)p->first_tok * a->x_stride, a->x_stride, acc};
    struct halves t[MAX_GROUPS];

    configure_tiles(rows);
    memset(acc, 0, (size_t)p->n_tok * MAX_GROUPS * MAT_LANES * sizeof *acc);
    for (int b = 0; b < a->n_cols / 256; b++) {
        const size_t at = (size_t)b * type.block_bytes;
        struct lanes l;
        if (a->n_rows < MAT_LANES) {
            uint8_t buf[MAT_LANES * MAX_BLOCK_BYTES];
            l = pad_rows(a, at, type.block_bytes, buf);
            unpack_halves(&l, ahead, type, is_wide, t);
        } else {
            for (int g = 0; g < p->n_g; g++, ahead += type.block_bytes * MAT_LANES) {
                l = lanes_at(p->w[g] + at, a->row_bytes);
                unpack_halves(&l, ahead, type, is_wide, t + g);
            }
        }
        if (p->n_g == 2)
            mul_halves(t, &tok, 2, p->n_tok, rows, type, is_wide);
        else
            mul_halves(t, &tok, 1, p->n_tok, rows, type, is_wide);
        tok.x += sizeof(struct act_q256);
    }
    TILES_RELEASE();
}

/* The definition takes the type's bias off the weights: so does unpack_halves. */
#define TILED(name, base, is_wide)                                                                 \
    static void groups_##name(const struct gemm_pass *p, float *acc)                               \
    {                                                                                              \
        groups_halves(p, acc, base, is_wide);                                                      \
    }                                                                                              \
    static void tiled_##name(const struct mat_args *a)                                             \
    {                                                                                              \
        if (a->n_tok < LEAST_TOKENS)                                                               \
            mat_gemm_##name(a);                                                                    \
        else                                                                                       \
            gemm_runs(a,                                                                           \
                      &(const struct gemm_type){.size = SIZE_K(base), .groups = groups_##name});   \
    }

TILED(q4k, TYPE_Q4K, true)
TILED(q5k, TYPE_Q5K, true)
TILED(q6k, TYPE_Q6K, true)
TILED(q2k, TYPE_Q2K, false) /* at most 3 * 15 */
TILED(q3k, TYPE_Q3K, true)
TILED(iq4xs, TYPE_IQ4XS, true)

void kernels_mat_amx(struct kernels *k)
{
    k->mat[QT_Q4_K].gemm = tiled_q4k;
    k->mat[QT_Q5_K].gemm = tiled_q5k;
    k->mat[QT_Q6_K].gemm = tiled_q6k;
    k->mat[QT_Q2_K].gemm = tiled_q2k;
    k->mat[QT_Q3_K].gemm = tiled_q3k;
    k->mat[QT_IQ4_XS].gemm = tiled_iq4xs;
}

/* emulated_tiles.h: the matrix instructions of src/kernels/x86/mat_tiles.h in C, so that what is
 * written in them is checked on CPUs without them. What a CPU refuses ends the program. */
#ifndef TESTS_KERNELS_EMULATED_TILES_H
#define TESTS_KERNELS_EMULATED_TILES_H

#include <stdlib.h>

#include "kernels/x86/mat_tiles.h"

#undef TILES_CONFIGURE
#undef TILES_RELEASE
#undef TILE_ZERO
#undef TILE_LOAD
#undef TILE_STORE
#undef TILE_DOT_SU
#undef TILE_DOT_SS
#define TILES_CONFIGURE(shapes)  emulate_configure(shapes)
#define TILES_RELEASE()          emulate_configure(&(const struct tile_shapes){0})
#define TILE_ZERO(t)             memset(emulated_row(t, 0), 0, sizeof emulated.tile[t])
#define TILE_LOAD(t, p, stride)  emulate_load(t, p, stride)
#define TILE_STORE(t, p, stride) emulate_store(t, p, stride)
#define TILE_DOT_SU(c, a, b)     emulate_dot(c, a, b, 0)
#define TILE_DOT_SS(c, a, b)     emulate_dot(c, a, b, 1)

static struct {
    struct tile_shapes shapes;
    uint8_t tile[8][TILE_ROWS][64];
} emulated;

/* Row of a tile that has a shape. */
static uint8_t *emulated_row(int t, int row)
{
    if (emulated.shapes.palette != 1 || row >= emulated.shapes.rows[t])
        abort();
    return emulated.tile[t][row];
}

static void emulate_configure(const struct tile_shapes *s)
{
    for (int i = 0; i < 8; i++)
        if (s->rows[i] > TILE_ROWS || s->row_bytes[i] > 64 || !s->rows[i] != !s->row_bytes[i])
            abort();
    emulated.shapes = *s;
    memset(emulated.tile, 0, sizeof emulated.tile);
}

static void emulate_load(int t, const void *p, size_t stride)
{
    memset(emulated.tile[t], 0, sizeof emulated.tile[t]);
    for (int r = 0; r < emulated.shapes.rows[t]; r++)
        memcpy(emulated_row(t, r), (const uint8_t *)p + (size_t)r * stride,
               emulated.shapes.row_bytes[t]);
}

static void emulate_store(int t, void *p, size_t stride)
{
    for (int r = 0; r < emulated.shapes.rows[t]; r++)
        memcpy((uint8_t *)p + (size_t)r * stride, emulated_row(t, r), emulated.shapes.row_bytes[t]);
}

static void emulate_dot(int c, int a, int b, int is_signed)
{
    const struct tile_shapes *s = &emulated.shapes;

    if (s->rows[c] != s->rows[a] || s->row_bytes[a] != 4 * s->rows[b] ||
        s->row_bytes[c] != s->row_bytes[b])
        abort();
    for (int m = 0; m < s->rows[c]; m++)
        for (int n = 0; n < s->row_bytes[c] / 4; n++) {
            int32_t sum;
            memcpy(&sum, emulated_row(c, m) + 4 * n, sizeof sum);
            for (int k = 0; k < s->row_bytes[a]; k++) {
                const uint8_t w = emulated_row(b, k / 4)[4 * n + k % 4];
                sum += (int8_t)emulated_row(a, m)[k] * (is_signed ? (int8_t)w : w);
            }
            memcpy(emulated_row(c, m) + 4 * n, &sum, sizeof sum);
        }
}

#endif

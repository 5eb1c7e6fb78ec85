/* mat_tiles.h: the matrix instructions that mat_amx.c is written in (AMX-TILE, AMX-INT8; Intel,
 * "Architecture Instruction Set Extensions Programming Reference", chapter 3).
 *
 * Eight tile registers of up to sixteen rows of 64 bytes; their numbers are literals. A dot adds to
 * every dword (m, n) of tile c the products of row m of tile a with column n of tile b, a column
 * being one dword of each row: int32 sums of byte products that neither saturate nor wrap as long
 * as they fit. tests/kernels/emulated_tiles.h has the same in C. */
#ifndef KERNELS_X86_MAT_TILES_H
#define KERNELS_X86_MAT_TILES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TILE_ROWS 16 /* at most, in a tile */

/* What ldtilecfg takes: rows and bytes per row of each tile. */
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles are nothing that the compiler knows: each statement stays where it is among the others. */
#define TILES_CONFIGURE(shapes) __asm__ volatile("ldtilecfg %0" ::"m"(*(shapes)))
#define TILES_RELEASE()         __asm__ volatile("tilerelease")
#define TILE_ZERO(t)            __asm__ volatile("tilezero %%tmm" #t ::)
/* Rows of memory are stride bytes apart. */
#define TILE_ROWS_AT(p, stride) "r"(p), "r"((size_t)(stride)) : "memory"
#define TILE_LOAD(t, p, stride)                                                                    \
    __asm__ volatile("tileloadd (%0,%1), %%tmm" #t ::TILE_ROWS_AT(p, stride))
#define TILE_STORE(t, p, stride)                                                                   \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1)" ::TILE_ROWS_AT(p, stride))
/* c += a * b: bytes of a signed, of b unsigned; both signed. */
#define TILE_DOT_SU(c, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define TILE_DOT_SS(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)

#endif

/* bytemap.h: the printable characters that stand for bytes in byte-level vocabularies. */
#ifndef TEXT_BYTEMAP_H
#define TEXT_BYTEMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The byte that character c stands for, -1 when none: printable Latin-1 (! to ~, U+00A1 to U+00AC,
 * U+00AE to U+00FF) stands for itself, U+0100 upwards for the 68 other bytes in rising order. */
int bytemap_byte_of(int32_t c);
int32_t bytemap_char_of(unsigned char byte);

/* Bytes that the mapped text s[0..n) stands for; out has room for n. False: a character of s stands
 * for no byte. */
bool bytemap_decode(const char *s, size_t n, char *out, size_t *n_out);

#endif

/* bytemap.h: the printable characters that stand for bytes in byte-level vocabularies. */
#ifndef TEXT_BYTEMAP_H
#define TEXT_BYTEMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The byte for a character: printable Latin-1 (! to ~, U+00A1 to U+00AC, U+00AE to U+00FF)
 * stands for itself, the 68 others for U+0100 upwards, in rising order. -1: c stands for no byte.
 */
int bytemap_byte_of(int32_t c);
int32_t bytemap_char_of(unsigned char byte);

/* Bytes that the mapped text s[0..n) stands for; out has room for n. False: a character of s stands
 * for no byte. */
bool bytemap_decode(const char *s, size_t n, char *out, size_t *n_out);

#endif

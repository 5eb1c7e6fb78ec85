/* utf8.h: UTF-8 as Unicode defines it: no overlong forms, no surrogates, at most U+10FFFF. */
#ifndef TEXT_UTF8_H
#define TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length of the longest prefix of s[0..n) that is whole, valid characters. */
size_t utf8_valid_prefix(const char *s, size_t n);

/* Length (0..3) of the tail of s[0..n) that could still become one valid character when more
 * bytes follow. */
size_t utf8_open_tail(const char *s, size_t n);

/* The character at s[0..n), n > 0; *len its bytes. -1 when it is not valid (*len is 1 then). */
int32_t utf8_decode_char(const char *s, size_t n, size_t *len);

/* Writes the character c (valid) to out; returns its bytes. */
size_t utf8_encode_char(int32_t c, char out[4]);

#endif

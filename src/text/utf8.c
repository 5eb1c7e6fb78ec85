#include "text/utf8.h"

#include <string.h>

/* What a lead byte asks for: the length of its character and the range of the second byte (The
 * Unicode Standard, table 3-7). Length 0: not a lead byte. */
struct lead {
    unsigned len, lo, hi;
};

static struct lead lead_of(unsigned char b)
{
    if (b < 0x80)
        return (struct lead){1, 0, 0};
    if (b < 0xc2 || b > 0xf4)
        return (struct lead){0, 0, 0};
    if (b < 0xe0)
        return (struct lead){2, 0x80, 0xbf};
    if (b < 0xf0)
        return (struct lead){3, b == 0xe0 ? 0xa0 : 0x80, b == 0xed ? 0x9f : 0xbf};
    return (struct lead){4, b == 0xf0 ? 0x90 : 0x80, b == 0xf4 ? 0x8f : 0xbf};
}

/* How many bytes of s[0..n) fit the character that s[0] starts: the length of the character when
 * it is whole; *want is that length, 0 when s[0] starts none. */
static size_t char_fit(const unsigned char *s, size_t n, size_t *want)
{
    struct lead l = lead_of(s[0]);
    *want = l.len;
    if (l.len < 2)
        return l.len;
    if (n < 2 || s[1] < l.lo || s[1] > l.hi)
        return 1;
    size_t i = 2;
    while (i < l.len && i < n && (s[i] & 0xc0) == 0x80)
        i++;
    return i;
}

size_t utf8_valid_prefix(const char *str, size_t n)
{
    const unsigned char *s = (const unsigned char *)str;
    size_t i = 0;
    while (i < n) {
        uint64_t w;
        if (n - i >= sizeof w) {
            memcpy(&w, s + i, sizeof w);
            if (!(w & 0x8080808080808080u)) {
                i += sizeof w;
                continue;
            }
        }
        size_t want, fit = char_fit(s + i, n - i, &want);
        if (want == 0 || fit < want)
            break;
        i += want;
    }
    return i;
}

size_t utf8_open_tail(const char *str, size_t n)
{
    const unsigned char *s = (const unsigned char *)str;
    for (size_t t = 1; t <= 3 && t <= n; t++) {
        size_t want, fit = char_fit(s + n - t, t, &want);
        if (want > t && fit == t)
            return t;
        if ((s[n - t] & 0xc0) != 0x80) /* a lead or an ASCII byte: nothing older is open */
            break;
    }
    return 0;
}

int32_t utf8_decode_char(const char *str, size_t n, size_t *len)
{
    const unsigned char *s = (const unsigned char *)str;
    size_t want, fit = char_fit(s, n, &want);
    if (want == 0 || fit < want) {
        *len = 1;
        return -1;
    }
    *len = want;
    if (want == 1)
        return s[0];
    int32_t c = s[0] & (0xff >> (want + 1));
    for (size_t i = 1; i < want; i++)
        c = (c << 6) | (s[i] & 0x3f);
    return c;
}

size_t utf8_encode_char(int32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00 >> n & 0xff) | c);
    return n;
}

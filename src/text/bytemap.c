#include "text/bytemap.h"

#include "text/utf8.h"

static bool is_itself(int32_t c)
{
    return (c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

/* The bytes that are not themselves, in order: 0x00..0x20, 0x7f..0xa0, 0xad. */
int bytemap_byte_of(int32_t c)
{
    if (is_itself(c))
        return c;
    int32_t k = c - 0x100;
    if (k < 0 || k > 67)
        return -1;
    return k <= 0x20 ? k : k <= 66 ? 0x7f + (k - 0x21) : 0xad;
}

int32_t bytemap_char_of(unsigned char byte)
{
    if (is_itself(byte))
        return byte;
    return 0x100 + (byte <= 0x20 ? byte : byte <= 0xa0 ? 0x21 + (byte - 0x7f) : 67);
}

bool bytemap_decode(const char *s, size_t n, char *out, size_t *n_out)
{
    size_t k = 0;
    for (size_t i = 0, len; i < n; i += len) {
        int32_t c = utf8_decode_char(s + i, n - i, &len);
        int b = bytemap_byte_of(c);
        if (c < 0 || b < 0)
            return false;
        out[k++] = (char)b;
    }
    *n_out = k;
    return true;
}

#include "text/random_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

uint64_t random_seed(void)
{
    const char *s = getenv("SLUICE_TEST_SEED");
    uint64_t seed = s ? strtoull(s, NULL, 0) : 20240607;
    printf("seed %llu (SLUICE_TEST_SEED)\n", (unsigned long long)seed);
    return seed;
}

uint64_t random_next(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int32_t random_char(uint64_t *state)
{
    static const int32_t range[][2] = {
        {'a', 'z'},         {'a', 'e'},           {' ', ' '},         {'0', '9'},
        {0x20, 0x7e},       {0x09, 0x0d},         {0xa0, 0x24f},      {0x300, 0x36f},
        {0x370, 0x5ff},     {0x900, 0x97f},       {0x1100, 0x11ff},   {0x1e00, 0x1fff},
        {0x2000, 0x206f},   {0x3041, 0x30ff},     {0x4e00, 0x9fff},   {0xac00, 0xd7a3},
        {0xf900, 0xfaff},   {0xfdd0, 0xffff},     {0x1d100, 0x1d1ff}, {0x1f300, 0x1f9ff},
        {0x2f800, 0x2fa1f}, {0x10fff0, 0x10ffff}, {0, 0x10ffff}};
    uint64_t r = random_next(state);
    const int32_t *w = range[r % (sizeof range / sizeof *range)];
    int32_t c = w[0] + (int32_t)((r >> 32) % (uint64_t)(w[1] - w[0] + 1));
    return c >= 0xd800 && c <= 0xdfff ? 'x' : c;
}

char *random_valid(uint64_t *state, size_t n, size_t *bytes)
{
    char *s = malloc(4 * n + 1);
    if (!s)
        abort();
    *bytes = 0;
    while (n > 0) {
        size_t again = random_next(state) % 8 ? 1 : random_next(state) % 40;
        for (int32_t c = random_char(state); again > 0 && n > 0; again--, n--)
            *bytes += utf8_encode_char(c, s + *bytes);
    }
    return s;
}

char *random_bytes(uint64_t *state, size_t n)
{
    char *s = malloc(n + 4);
    if (!s)
        abort();
    size_t i = 0;
    while (i < n) {
        uint64_t r = random_next(state);
        if (r % 3 == 0) {
            s[i++] = (char)(r >> 40);
        } else {
            size_t len = utf8_encode_char(random_char(state), s + i);
            i += r % 17 ? len : 1 + (r >> 32) % len; /* sometimes cut off */
        }
    }
    return s;
}

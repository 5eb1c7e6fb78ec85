/* mat_avx2_signs.h: the signs of the IQ2 and IQ3 types. A block has 32 bytes of sign bits, one bit
 * a value; some types store seven of the eight, the last makes the number of minus signs even. */
#ifndef KERNELS_X86_MAT_AVX2_SIGNS_H
#define KERNELS_X86_MAT_AVX2_SIGNS_H

#include "kernels/x86/mat_avx2_ints.h"

/* Bit 7 of each byte from its bits 0 to 6 (bit 7 is 0). */
ALWAYS_INLINE __m256i add_parity(__m256i bits7)
{
    /* of four bits */
    const __m256i odd = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i both = _mm256_xor_si256(bits7, _mm256_srli_epi16(bits7, 4));

    return _mm256_or_si256(bits7,
                           _mm256_shuffle_epi8(odd, _mm256_and_si256(both, _mm256_set1_epi8(15))));
}

/* Dwords with four times seven bits (and four other bits on top) to eight sign bits a byte. */
ALWAYS_INLINE __m256i spread_signs7(__m256i v)
{
    const __m256i low14 = _mm256_and_si256(v, _mm256_set1_epi32(0x3fff));
    const __m256i high14 = _mm256_and_si256(_mm256_slli_epi32(v, 2), _mm256_set1_epi32(0x3fff0000));
    const __m256i halves = _mm256_or_si256(low14, high14);
    const __m256i low7 = _mm256_and_si256(halves, _mm256_set1_epi16(0x7f));
    const __m256i high7 = _mm256_and_si256(_mm256_slli_epi16(halves, 1), _mm256_set1_epi16(0x7f00));

    return add_parity(_mm256_or_si256(low7, high7));
}

/* Scales 2s + 1 of the top four bits of eight dwords, as int16 (dealt: of groups of 32). */
ALWAYS_INLINE __m256i scales_of_tops(__m256i v)
{
    const __m256i s = _mm256_or_si256(_mm256_slli_epi32(_mm256_srli_epi32(v, 28), 1),
                                      _mm256_set1_epi32(1));

    return deal_pairs(_mm_packs_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1)));
}

/* Scales 2s + 1 of sixteen nibbles, dealt. */
ALWAYS_INLINE __m256i scales_of_nibbles(const uint8_t *p)
{
    const __m128i v = _mm_loadl_epi64((const void *)p), m4 = _mm_set1_epi8(15);
    const __m128i both = _mm_unpacklo_epi64(_mm_and_si128(v, m4),
                                            _mm_and_si128(_mm_srli_epi16(v, 4), m4));
    const __m256i s = _mm256_cvtepu8_epi16(both); /* the low nibbles are the even groups */

    return _mm256_or_si256(_mm256_slli_epi16(s, 1), _mm256_set1_epi16(1));
}

/* +1 or -1 from sign bytes 4c to 4c + 3 of aux. */
ALWAYS_INLINE __m256i signs_of_bits(const uint8_t *p, const struct row_ints *r, int c)
{
    (void)p;
    return _mm256_or_si256(spread_bits(pick_dword(r->aux, c)), _mm256_set1_epi8(1));
}

#endif

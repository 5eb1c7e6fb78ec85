/* sha256.h: SHA-256 (FIPS 180-4), so that checksums can be compared with sha256sum's. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32
#define SHA256_HEX   65 /* digits and the terminator */

struct sha256 {
    uint32_t h[8];
    uint64_t n; /* bytes so far */
    uint8_t block[64];
};

void sha256_begin(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t n);
void sha256_end(struct sha256 *s, uint8_t digest[SHA256_BYTES]);
/* Lower-case digits, as sha256sum prints them. */
void sha256_print(const uint8_t digest[SHA256_BYTES], char hex[SHA256_HEX]);

#endif

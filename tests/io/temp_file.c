#include "io/temp_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

uint8_t temp_byte(uint64_t pos)
{
    uint64_t z = (pos >> 3) * UINT64_C(0x9e3779b97f4a7c15) + 1;
    z = (z ^ (z >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint8_t)(z >> (8 * (pos & 7)));
}

size_t temp_first_wrong(const uint8_t *buf, uint64_t pos, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (buf[i] != temp_byte(pos + i))
            return i;
    return n;
}

int temp_create(const char *dir, uint64_t size, char *path)
{
    snprintf(path, 256, "%s/sluice-XXXXXX", dir);
    int fd = mkstemp(path);
    if (fd < 0)
        return -1;
    static uint8_t block[1 << 16];
    for (uint64_t pos = 0; pos < size;) {
        size_t n = size - pos < sizeof block ? (size_t)(size - pos) : sizeof block;
        for (size_t i = 0; i < n; i++)
            block[i] = temp_byte(pos + i);
        ssize_t k = write(fd, block, n);
        if (k < 0) {
            int e = errno;
            close(fd);
            unlink(path);
            errno = e;
            return -1;
        }
        pos += (uint64_t)k;
    }
    fsync(fd);
    close(fd);
    return 0;
}

uint64_t temp_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t temp_seed(void)
{
    const char *s = getenv("SLUICE_TEST_SEED");
    uint64_t seed = s ? strtoull(s, NULL, 0) : (uint64_t)time(NULL);
    printf("SLUICE_TEST_SEED=%" PRIu64 "\n", seed);
    return seed;
}

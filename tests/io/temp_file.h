/* temp_file.h: files with known contents, in the working directory (the build's file system). */
#ifndef TESTS_IO_TEMP_FILE_H
#define TESTS_IO_TEMP_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Byte of the file's contents at a position: any window can be checked without a copy. */
uint8_t temp_byte(uint64_t pos);
/* Number of the first wrong byte of a buffer that should hold [pos, pos + n); n: all are right. */
size_t temp_first_wrong(const uint8_t *buf, uint64_t pos, size_t n);

/* Writes size bytes to a new file dir/sluice-XXXXXX, synced to the drive; path: 256 bytes. 0, or -1
 * and errno. */
int temp_create(const char *dir, uint64_t size, char *path);

uint64_t temp_random(uint64_t *state); /* splitmix64 */

/* Seed of a random test: of the clock, or $SLUICE_TEST_SEED; printed. */
uint64_t temp_seed(void);

#endif

/* random_text.h: reproducible random text. */
#ifndef TEST_RANDOM_TEXT_H
#define TEST_RANDOM_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* The seed: $SLUICE_TEST_SEED, else a fixed number; printed. */
uint64_t random_seed(void);
uint64_t random_next(uint64_t *state);

/* n characters of valid UTF-8 from scripts, white space, digits, marks, Hangul, emoji and anywhere;
 * malloc'd, *bytes long. */
char *random_valid(uint64_t *state, size_t n, size_t *bytes);
/* n bytes: stretches of valid text, stray and cut-off bytes, noise. */
char *random_bytes(uint64_t *state, size_t n);

#endif

/* ggufsplit.h: cut a GGUF file into a split set, as llama.cpp's gguf-split does. */
#ifndef SUPPORT_GGUFSPLIT_H
#define SUPPORT_GGUFSPLIT_H

#include <stdbool.h>
#include <stddef.h>

/* Write PREFIX-00001-of-0000N.gguf and so on; with bare_first the first shard holds metadata alone.
 * first: the first shard's path, first_bytes long. The source is a well-formed version 3 file.
 * False: a file could not be read or written, or there are fewer tensors than shards. */
bool ggufsplit_write(const char *source, const char *prefix, int n_shards, bool bare_first,
                     char *first, size_t first_bytes);

#endif

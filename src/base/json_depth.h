/* json_depth.h: a bound on JSON from outside, before a parser that recurses sees it. */
#ifndef BASE_JSON_DEPTH_H
#define BASE_JSON_DEPTH_H

#include <stdbool.h>
#include <stddef.h>

/* More than most brackets are open at once somewhere in the n bytes. They need not be JSON. */
bool json_depth_exceeds(const char *s, size_t n, int most);

#endif

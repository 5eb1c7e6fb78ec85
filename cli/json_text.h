/* json_text.h: JSON strings of names that may hold any byte: of files, and inside models. */
#ifndef CLI_JSON_TEXT_H
#define CLI_JSON_TEXT_H

#include <jansson.h>

/* JSON has no way to write bytes that are no UTF-8: then each above 0x7f becomes '?'. Null for
 * NULL. */
json_t *json_text_make(const char *s);
json_t *json_text_make_n(const char *s, size_t n);

#endif

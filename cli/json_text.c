#include "cli/json_text.h"

#include "base/mem.h"

#include <string.h>

json_t *json_text_make_n(const char *s, size_t n)
{
    if (!s)
        return json_null();
    json_t *j = json_stringn(s, n);
    if (j)
        return j;
    char *copy = mem_strndup(s, n);
    for (size_t i = 0; copy && i < n; i++)
        if ((unsigned char)copy[i] >= 0x80)
            copy[i] = '?';
    j = copy ? json_stringn(copy, n) : NULL;
    mem_free(copy);
    return j;
}

json_t *json_text_make(const char *s)
{
    return json_text_make_n(s, s ? strlen(s) : 0);
}

#include "base/json_depth.h"

bool json_depth_exceeds(const char *s, size_t n, int most)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\\' && in_string)
            i++;
        else if (s[i] == '"')
            in_string = !in_string;
        else if (!in_string && (s[i] == '[' || s[i] == '{') && ++depth > most)
            return true;
        else if (!in_string && (s[i] == ']' || s[i] == '}'))
            depth--;
    }
    return false;
}

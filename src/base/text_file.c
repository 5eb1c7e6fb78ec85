#include "base/text_file.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE_FIRST ((size_t)4 << 10)
#define SIZE_MOST  ((size_t)4 << 20) /* a mount table with tens of thousands of lines */

/* These files have no size before they are read. */
static char *read_all(int fd)
{
    size_t size = SIZE_FIRST, n = 0;
    char *text = mem_alloc(size);
    while (text) {
        ssize_t k = read(fd, text + n, size - 1 - n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            break;
        n += (size_t)k;
        if (k == 0) {
            text[n] = 0;
            return text;
        }
        if (n < size - 1)
            continue;
        char *grown = size < SIZE_MOST ? mem_realloc(text, size * 2) : NULL;
        if (!grown)
            break;
        text = grown;
        size *= 2;
    }
    mem_free(text);
    return NULL;
}

char *text_file_read(const char *root, const char *path)
{
    char full[PATH_MAX];
    int len = snprintf(full, sizeof full, "%s%s", root, path);
    if (len < 0 || len >= (int)sizeof full)
        return NULL;
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    char *text = read_all(fd);
    close(fd);
    return text;
}

bool text_file_pressure(const char *text, uint64_t *us)
{
    const char *line = strncmp(text, "some ", 5) == 0 ? text : strstr(text, "\nsome ");
    if (!line)
        return false;
    const char *end = strchr(line + 1, '\n'), *total = strstr(line, " total=");
    if (!total || (end && total > end) || total[7] < '0' || total[7] > '9')
        return false;
    *us = strtoull(total + 7, NULL, 10);
    return true;
}

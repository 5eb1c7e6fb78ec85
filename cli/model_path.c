#include "cli/model_path.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK_NAME "model.gguf"

static int too_long(struct sl_err *err)
{
    return err_set(err, SL_E_ARG, "--model", "the path of the model is too long");
}

static bool ends_with(const char *s, size_t n, const char *end)
{
    const size_t m = strlen(end);
    return n >= m && memcmp(s + n - m, end, m) == 0;
}

/* A GGUF file that is no later part of a split set ("...-00002-of-00003.gguf"). */
static bool is_model(const char *name)
{
    const size_t n = strlen(name), tail = strlen("00001-of-00003.gguf");
    if (name[0] == '.' || !ends_with(name, n, ".gguf"))
        return false;
    if (n <= tail || memcmp(name + n - tail + 5, "-of-", 4) != 0)
        return true;
    return memcmp(name + n - tail, "00001", 5) == 0;
}

static int find_only(const char *path, char *buf, size_t size, struct sl_err *err)
{
    DIR *d = opendir(path);
    if (!d)
        return err_file(err, SL_E_IO, path, errno, "cannot open the directory");
    int found = 0, len = 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL && found < 2;)
        if (is_model(e->d_name)) {
            len = snprintf(buf, size, "%s/%s", path, e->d_name);
            found++;
        }
    closedir(d);
    if (found == 0)
        return err_file(err, SL_E_IO, path, 0, "there is no GGUF file in this directory");
    if (found > 1)
        return err_file(
            err, SL_E_IO, path, 0,
            "there are several GGUF files in this directory and none of them is " LINK_NAME
            ": name one");
    return len > 0 && (size_t)len < size ? 0 : too_long(err);
}

bool model_path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int model_path_find(const char *path, char *buf, size_t size, struct sl_err *err)
{
    const bool dir = model_path_is_dir(path);
    const int n = snprintf(buf, size, dir ? "%s/" LINK_NAME : "%s", path);
    if (n < 0 || (size_t)n >= size)
        return too_long(err);
    return !dir || access(buf, F_OK) == 0 ? 0 : find_only(path, buf, size, err);
}

bool model_path_dir(const char *path, char *buf, size_t size)
{
    const char *slash = model_path_is_dir(path) ? NULL : strrchr(path, '/');
    int n;
    if (model_path_is_dir(path))
        n = snprintf(buf, size, "%s", path);
    else if (slash)
        n = snprintf(buf, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    else
        n = snprintf(buf, size, ".");
    return n > 0 && (size_t)n < size;
}

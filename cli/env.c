#include "cli/env.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL_NAME "storyteller.gguf"

static const struct env_row ROWS[] = {
    {"SLUICE_MODEL", "Model file to use when no -m is given"},
    {"SLUICE_MODEL_DIR",
     "Directory with a model and packed trees that cachebench and infer use when no --model is "
     "given, instead of ./model"},
    {NULL, NULL},
};

const struct env_row *env_rows(void)
{
    return ROWS;
}

const char *env_model(void)
{
    const char *s = getenv(ROWS[0].name);
    return s != NULL && s[0] != '\0' ? s : NULL;
}

const char *env_model_dir(void)
{
    const char *s = getenv(ROWS[1].name);
    return s != NULL && s[0] != '\0' ? s : "./model";
}

/* PREFIX/share/sluice/MODEL_NAME for a program at PREFIX/bin/NAME. */
static const char *installed_model(char *buf, size_t size)
{
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return NULL;
    exe[n] = '\0';
    for (int up = 0; up < 2; up++) { /* drop the name, then bin */
        char *slash = strrchr(exe, '/');
        if (slash == NULL)
            return NULL;
        *slash = '\0';
    }
    int len = snprintf(buf, size, "%s/share/sluice/%s", exe, MODEL_NAME);
    return len > 0 && (size_t)len < size && access(buf, F_OK) == 0 ? buf : NULL;
}

const char *env_default_model(char *buf, size_t size)
{
    const char *s = env_model();
    if (s != NULL) {
        int len = snprintf(buf, size, "%s", s);
        return len > 0 && (size_t)len < size ? buf : NULL;
    }
    if (installed_model(buf, size) != NULL)
        return buf;
    int len = snprintf(buf, size, "%s/%s", SLUICE_SOURCE_MODELS, MODEL_NAME);
    return len > 0 && (size_t)len < size && access(buf, F_OK) == 0 ? buf : NULL;
}

/* sniff.c: what a file that is not GGUF most likely is. The common accidents each have an answer
 * that helps more than "bad magic". */
#include "gguf/internal.h"

#include <string.h>

static bool begins(const uint8_t *p, size_t n, const char *with)
{
    size_t k = strlen(with);
    return n >= k && memcmp(p, with, k) == 0;
}

static bool is_text(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((p[i] < 0x20 && p[i] != '\n' && p[i] != '\r' && p[i] != '\t') || p[i] == 0x7f)
            return false;
    return true;
}

const char *gguf_sniff(const uint8_t *p, size_t n)
{
    static const struct {
        const char *begin, *is;
    } known[] = {
        {"version https://git-lfs", "this is a Git LFS pointer, not the model: fetch the real file "
                                    "(git lfs pull)"},
        {"<!DOCTYPE", "this is a web page, not a GGUF file: download the model itself"},
        {"<!doctype", "this is a web page, not a GGUF file: download the model itself"},
        {"<html", "this is a web page, not a GGUF file: download the model itself"},
        {"lmgg",
         "this is a file of the GGML format that came before GGUF: convert the model again"},
        {"fmgg",
         "this is a file of the GGML format that came before GGUF: convert the model again"},
        {"tjgg",
         "this is a file of the GGML format that came before GGUF: convert the model again"},
        {"PK\x03\x04", "this is a zip archive or PyTorch checkpoint, not a GGUF file: convert it "
                       "first"},
        {"\x1f\x8b", "this is gzip-compressed, not a GGUF file: unpack it first"},
        {"\x28\xb5\x2f\xfd", "this is zstd-compressed, not a GGUF file: unpack it first"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (begins(p, n, known[i].begin))
            return known[i].is;
    if (n >= 10 && p[8] == '{' && p[9] == '"')
        return "this looks like a safetensors file, not a GGUF file: convert it first";
    if (is_text(p, n))
        return "this is a text file, not a GGUF file";
    return "this is not a GGUF file (those begin with the letters GGUF)";
}

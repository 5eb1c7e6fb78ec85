/* fuzz_packed.c: hostile manifests of packed experts. What is accepted can be written and read
 * again, and is the same then. */
#include "base/mem.h"
#include "fuzz/target.h"
#include "model/packed.h"

#include <stdlib.h>
#include <string.h>

static void check(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct packed_manifest *m, *again;
    struct sl_err err;
    char *text, why[256];
    int rc = packed_parse((const char *)data, size, "manifest", &m, &err);
    if (rc < 0) {
        check(m == NULL && err.code == rc && err.msg[0] != '\0');
        return 0;
    }
    check(packed_format(m, &text, &err) == 0);
    check(packed_parse(text, strlen(text), "again", &again, &err) == 0);
    check(strcmp(m->identity, again->identity) == 0 && m->source_bytes == again->source_bytes &&
          strcmp(m->source, again->source) == 0);
    for (int i = 0; i < PACKED_FOLDERS; i++) {
        check((m->tree[i] != NULL) == (again->tree[i] != NULL));
        check(!m->tree[i] || !packed_compare(m->tree[i], again->tree[i], why, sizeof why));
    }
    mem_free(text);
    packed_close(&m);
    packed_close(&again);
    return 0;
}

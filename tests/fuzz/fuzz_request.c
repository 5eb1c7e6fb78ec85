/* fuzz_request.c: a line of --session. What is taken is within bounds, and nothing is left behind.
 */
#include "base/mem.h"
#include "cli/run_request.h"
#include "fuzz/target.h"

#include <stdlib.h>
#include <string.h>

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void check_generate(const struct request *r)
{
    const struct sl_sampling *s = &r->sampling;
    check((r->prompt != NULL) != (r->ids != NULL));
    check(r->prompt == NULL || r->prompt[r->n_prompt] == 0);
    check(!r->chat || r->prompt != NULL);
    for (size_t i = 0; i < r->n_ids; i++)
        check(r->ids[i] >= 0);
    check(r->n_predict <= 1000000);
    check(s->temp >= 0 && s->temp <= 100 && s->top_k >= 0 && s->top_p >= 0 && s->top_p <= 1);
    check(s->min_p >= 0 && s->min_p <= 1 && s->repeat_penalty >= 0.0099f &&
          s->repeat_penalty <= 100);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct request defaults = {.n_predict = 256,
                                            .sampling = {.top_p = 1, .repeat_penalty = 1}};
    struct sl_err err = {0};
    struct request *r;
    uint64_t before = mem_now();
    int rc = request_parse((const char *)data, size, &defaults, &r, &err);
    check(rc == 0 || (rc < 0 && err.code == rc && err.msg[0] && strchr(err.msg, '\n') == NULL));
    check(r != NULL && (!r->has_id || strlen(r->id) <= REQUEST_MAX_ID));
    if (rc == 0 && r->op == REQUEST_GENERATE)
        check_generate(r);
    request_free(&r);
    check(r == NULL && mem_now() == before);
    return 0;
}

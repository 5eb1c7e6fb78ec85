#include "model/arch/arch.h"

#include <string.h>

static const struct model_arch *const table[] = {&arch_llama, &arch_qwen2, &arch_qwen3,
                                                 &arch_qwen3moe};

const struct model_arch *model_arch_find(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strlen(table[i]->name) == n && memcmp(table[i]->name, name, n) == 0)
            return table[i];
    return NULL;
}

const char *model_arch_list(void)
{
    return "llama, qwen2, qwen3, qwen3moe";
}

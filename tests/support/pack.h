/* pack.h: packed trees for tests, by the parts that sluice pack is made of. */
#ifndef SUPPORT_PACK_H
#define SUPPORT_PACK_H

#include "sluice.h"

#include <stdbool.h>

/* Pack the model at path into dir, which is made; false: trouble, told on standard error. */
bool pack_write(const char *path, const char *dir, enum sl_packed kind);

#endif

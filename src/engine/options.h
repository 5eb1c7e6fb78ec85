/* options.h: checking what the caller asked for. */
#ifndef ENGINE_OPTIONS_H
#define ENGINE_OPTIONS_H

#include "kernels/kernels.h"
#include "sluice.h"

/* SL_E_ARG names the option that is out of range or contradicts another. */
int options_check(const struct sl_engine_options *o, struct sl_err *err);
enum kv_type options_kv_type(enum sl_kv_type t);

#endif

/* options.h: checking what the caller asked for. */
#ifndef ENGINE_OPTIONS_H
#define ENGINE_OPTIONS_H

#include "sluice.h"

/* SL_E_ARG names the option that is out of range or contradicts another. */
int options_check(const struct sl_engine_options *o, struct sl_err *err);

#endif

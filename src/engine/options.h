/* options.h: the caller's options in the words of the engine's parts. */
#ifndef ENGINE_OPTIONS_H
#define ENGINE_OPTIONS_H

#include "kernels/kernels.h"
#include "sluice.h"

enum kv_type options_kv_type(enum sl_kv_type t);

#endif

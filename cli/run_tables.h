/* run_tables.h: what --timing, --cache-telemetry and --io-trace add to the report. */
#ifndef CLI_RUN_TABLES_H
#define CLI_RUN_TABLES_H

#include "cli/report.h"
#include "telemetry/limit.h"
#include "telemetry/reuse.h"
#include "telemetry/times.h"

void tables_print_timing(const struct times *prompt, const struct times *decode,
                         const struct report_summary *s);
/* token_bytes: of the experts that one token routes to, token_experts of them. */
void tables_print_cache(const struct reuse *r, bool streamed, uint64_t token_bytes,
                        uint64_t token_experts);
void tables_print_limit(const struct limit *l, const struct report_summary *s);

#endif

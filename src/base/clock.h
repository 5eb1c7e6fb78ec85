/* clock.h: monotonic wall time and CPU time, in seconds. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

double clock_now(void);     /* monotonic */
double clock_cpu(void);     /* CPU seconds of all threads of this process */
void clock_sleep(double s); /* at least this long */

#endif

/* math64.h: elementary functions in binary64 for tables that are made once (RoPE, YaRN): exact
 * sequences of + - * / fma, the same bytes everywhere, errors below one ulp (docs/arithmetic.md).
 */
#ifndef KERNELS_MATH64_H
#define KERNELS_MATH64_H

double math64_log(double x);           /* natural; x > 0 and finite, else NaN (-inf at 0) */
double math64_exp(double x);           /* 0 below -745.2, infinity above 709.79 */
double math64_pow(double x, double y); /* x > 0, both finite, else NaN */
/* |x| <= 2^32, else NaN. */
double math64_sin(double x);
double math64_cos(double x);

#endif

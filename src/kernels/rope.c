/* rope.c: the tables of rotary position embedding. Everything is binary64 (math64.h) until the last
 * rounding, so that the tables are the same on every machine and right at large positions. */
#include "kernels/kernels.h"
#include "kernels/math64.h"

void kern_rope_freqs(double base, int n_rot, double *freqs)
{
    for (int i = 0; i < n_rot / 2; i++)
        freqs[i] = math64_pow(base, -(double)(2 * i) / (double)n_rot);
}

void kern_rope_table(int64_t pos, const double *freqs, int n_half, double mscale, float *cosines,
                     float *sines)
{
    for (int i = 0; i < n_half; i++) {
        const double angle = (double)pos * freqs[i];
        cosines[i] = (float)(math64_cos(angle) * mscale);
        sines[i] = (float)(math64_sin(angle) * mscale);
    }
}

/* rope.c: the tables of rotary position embedding. Everything is binary64 (math64.h) until the last
 * rounding, so that the tables are the same on every machine and right at large positions. */
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/math64.h"

void kern_rope_freqs(double base, int n_rot, double *freqs)
{
    for (int i = 0; i < n_rot / 2; i++)
        freqs[i] = math64_pow(base, -(double)(2 * i) / (double)n_rot);
}

/* The pair, as a fraction, that turns `turns` times over n_ctx positions. */
static double turning_pair(double turns, const struct kern_yarn *y, double base, int n_rot)
{
    const double two_pi = 0x1.921fb54442d18p+2;

    return (double)n_rot * math64_log(y->n_ctx / (turns * two_pi)) / (2 * math64_log(base));
}

/* floor and ceil are exact: library functions are no danger to the bytes. */
void kern_rope_yarn(const struct kern_yarn *y, double base, int n_rot, double *freqs)
{
    const double lo = floor(turning_pair(y->beta_fast, y, base, n_rot));
    const double hi = ceil(turning_pair(y->beta_slow, y, base, n_rot));
    const double low = lo > 0 ? lo : 0, high = hi < n_rot - 1 ? hi : n_rot - 1;
    const double width = high - low > 0.001 ? high - low : 0.001;

    for (int i = 0; i < n_rot / 2; i++) {
        const double at = ((double)i - low) / width;
        const double t = at > 0 ? at : 0;
        const double kept = (1 - (t < 1 ? t : 1)) * y->ext;
        freqs[i] = freqs[i] / y->factor * (1 - kept) + freqs[i] * kept;
    }
}

double kern_yarn_magnitude(double factor, double mul)
{
    return factor > 1 ? 0.1 * mul * math64_log(factor) + 1 : 1;
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

"""Quantiles and bootstrap intervals."""
import itertools
import math
import random


def mean(values):
    return sum(values) / len(values) if values else None


def seconds(v):
    """As text: three figures at least, four decimals at least."""
    digits = 2 - math.floor(math.log10(abs(v))) if v else 4
    return f"{v:.{min(max(digits, 4), 9)}f}"


def quantile(values, q):
    """Nearest rank, as in the report of sluice run: the smallest value that at least the share q does not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(math.ceil(q * len(ordered) - 1e-12), 1) - 1]


class Blocks:
    """Resampled means of a series whose neighbours resemble each other, as tokens do: blocks of about the cube root
    of its length are drawn with replacement (moving blocks, wrapped around the end) instead of single values."""

    def __init__(self, values):
        self.n = len(values)
        self.length = max(round(self.n ** (1 / 3)), 1)
        self.sums = list(itertools.accumulate(list(values) * 2, initial=0.0))

    def draw(self, rng):
        """(sum, count) of one resample of n values."""
        total, left = 0.0, self.n
        while left > 0:
            take = min(self.length, left)
            start = int(rng.random() * self.n)
            total += self.sums[start + take] - self.sums[start]
            left -= take
        return total, self.n


def draw_mean(runs, rng):
    """Mean of one resample: runs with replacement, then blocks of each."""
    total = count = 0
    for _ in runs:
        s, n = runs[int(rng.random() * len(runs))].draw(rng)
        total, count = total + s, count + n
    return total / count


def interval(draw, key, seed, resamples):
    """The middle 95 % of draw(rng). The same seed and key give the same interval, whatever else is asked for."""
    rng = random.Random(f"{seed}/{key}".encode("utf-8", "backslashreplace"))
    found = [draw(rng) for _ in range(resamples)]
    return quantile(found, 0.025), quantile(found, 0.975)


def mean_interval(runs, key, seed, resamples):
    """runs: lists of values."""
    blocks = [Blocks(r) for r in runs if r]
    if not blocks:
        return None
    return interval(lambda rng: draw_mean(blocks, rng), key, seed, resamples)


def ratio_interval(above, below, key, seed, resamples):
    """Of mean(above) / mean(below); both are lists of runs. None where the means are not above 0."""
    a, b = [Blocks(r) for r in above if r], [Blocks(r) for r in below if r]
    if not a or not b or min(min(min(r) for r in above if r), min(min(r) for r in below if r)) <= 0:
        return None
    return interval(lambda rng: draw_mean(a, rng) / draw_mean(b, rng), key, seed, resamples)

"""The tables of bench-analyze.py: (names of columns, rows of text)."""
from analysis.stats import mean, mean_interval, quantile, ratio_interval, seconds
from analysis.tells import read_rate

MIB = 1048576.0


def show(v, digits=None):
    """Not measured is empty, never 0. Without a number of digits: seconds."""
    if v is None:
        return ""
    return seconds(v) if digits is None else f"{v:.{digits}f}"


def lowest(values):
    return min(values, default=None)


def highest(values):
    return max(values, default=None)


class Tables:
    def __init__(self, cells, skip, seed, resamples):
        self.cells, self.skip, self.seed, self.resamples = cells, skip, seed, resamples

    def runs(self, cell, name):
        return [r for r in (run.known(name, self.skip) for run in cell.runs) if r]

    def times(self):
        rows = []
        for c in self.cells:
            v = c.known("loop_s", self.skip)
            low, high = mean_interval(self.runs(c, "loop_s"), f"mean/{c.name}", self.seed, self.resamples)
            rows.append([c.name, str(len(c.runs)), str(len(v)), show(1 / mean(v), 2), show(mean(v)),
                         f"{seconds(low)} to {seconds(high)}", show(quantile(v, 0.5)), show(quantile(v, 0.05)),
                         show(quantile(v, 0.95)), show(min(v)), show(max(v))])
        return (["cell", "runs", "tokens", "tok/s", "mean s", "95 % interval", "median s", "p5 s", "p95 s", "min s",
                 "max s"], rows)

    def against_first(self):
        """Mean token time by that of the first cell."""
        first, rows = self.cells[0], []
        for c in self.cells[1:]:
            mine, theirs = mean(c.known("loop_s", self.skip)), mean(first.known("loop_s", self.skip))
            low, high = ratio_interval(self.runs(c, "loop_s"), self.runs(first, "loop_s"),
                                       f"against/{c.name}", self.seed, self.resamples)
            says = "faster" if high < 1 else "slower" if low > 1 else "no difference seen"
            rows.append([c.name, show(mine / theirs, 3), f"{low:.3f} to {high:.3f}", says])
        return ["cell", f"time by that of {first.name}", "95 % interval", ""], rows

    def parts(self):
        rows = []
        for c in self.cells:
            def per(name, digits=None, scale=1.0, cell=c):
                v = mean(cell.known(name, self.skip))
                return show(None if v is None else v / scale, digits)
            hits, misses = sum(c.known("hits", self.skip)), sum(c.known("misses", self.skip))
            routed, dropped = sum(c.known("experts_routed", self.skip)), sum(c.known("experts_dropped", self.skip))
            rate = read_rate(c, self.skip)
            rows.append([c.name, per("compute_s"), per("mgmt_s"), per("stall_s"), per("other_s"), per("overhead_s"),
                         per("cpu_s"), show(100 * hits / (hits + misses), 1) if hits + misses else "",
                         per("read_bytes", 1, MIB), show(None if rate is None else rate / MIB, 0),
                         show(100 * dropped / routed, 2) if routed else ""])
        return (["cell", "compute s", "mgmt s", "stall s", "other s", "overhead s", "CPU s", "hit %", "MiB", "MiB/s",
                 "dropped %"], rows)

    def pressure(self):
        rows = []
        for c in self.cells:
            def sampled(name, cell=c):  # from the metrics beside the runs
                return [v for r in cell.runs if r.metrics for v in r.metrics.get(name, []) if v is not None]
            anon = [a + (s or 0) for r in c.runs
                    for a, s in zip(r.column("rss_anon_mib"), r.column("rss_shmem_mib")) if a is not None]
            left = sampled("mem_available_mib") + c.known("mem_available_mib", 0)
            temp, clock = sampled("temp_c"), sampled("max_khz")
            rows.append([c.name, show(highest(anon), 0), show(highest(sampled("rss_mib")), 0), show(lowest(left), 0),
                         show(mean(c.known("majflt", self.skip)), 2), show(lowest(c.known("dense_resident_pct", 0)), 1),
                         show(lowest(c.known("cache_budget_mib", 0)), 0), show(highest(sampled("psi_some_avg10")), 2),
                         f"{temp[0]:g} / {max(temp):g}" if temp else "",
                         f"{max(clock) / 1000:.0f} / {min(clock) / 1000:.0f}" if clock else ""])
        return (["cell", "RssAnon+RssShmem peak MiB", "RSS peak MiB", "MemAvailable floor MiB", "majflt per token",
                 "dense resident min %", "cache min MiB", "PSI some max %", "°C first / max", "clock limit MHz max / min"],
                rows)

"""Signs that a measurement is not what it seems to be. Each check of a cell ends in one of OK, FLAG, UNKNOWN."""
from analysis.stats import mean, ratio_interval, seconds

OK, FLAG, UNKNOWN = "ok", "FLAG", "not checked"
SLOWER = 1.10       # last third of a run by the first
MIN_TOKENS = 24     # for that: eight in each third
COMPUTE_RISE = 1.03
FEWER = 0.95        # experts per token, to count as a smaller top-k
JUMP = 10           # major faults
FAULTS = 0.1        # per token: less than this counts as this much
OVER_DRIVE = 1.10
APART = 1.10        # mean token time of a cell's slowest run by its fastest

# What changes the arithmetic of a token, or where its weights come from, beside the number of experts.
ARITHMETIC = ("plan.threads", "plan.cpu", "plan.mode", "plan.dense_weights", "option.4bit", "option.q3-experts",
              "option.2bit", "option.packed", "option.overlap", "option.odirect", "option.cache-mb",
              "option.drop-cold-experts", "option.expert-substitute")

TITLES = {
    "top-k": "compute time rises as top-k falls",
    "majflt": "major faults jump tenfold",
    "slowing": "tokens slow down over the run",
    "page cache": "reads faster than the drive",
    "runs": "runs differ",
}


class Verdict:
    def __init__(self, tell, state, text):
        self.tell, self.state, self.text = tell, state, text


class Judge:
    def __init__(self, cells, skip, seed, resamples, drive_gb_s):
        self.cells, self.skip, self.seed, self.resamples = cells, skip, seed, resamples
        self.drive_gb_s = drive_gb_s

    def judge(self, cell):
        return [self.top_k(cell), self.faults(cell), self.slowing(cell), self.page_cache(cell),
                self.apart(cell)]

    def runs(self, cell, name):
        return [r for r in (run.known(name, self.skip) for run in cell.runs) if r]

    def like(self, cell, *keys):
        """Other cells of the same model that agree in these entries of the preamble."""
        keys += ("model.name", "model.arch", "model.file_mib")
        return [c for c in self.cells if c is not cell and all(c.pre(k) == cell.pre(k) for k in keys)]

    def top_k(self, cell):
        """Fewer experts are less arithmetic, so a cell that computes longer with fewer was disturbed, or the other."""
        here, mine = mean(cell.known("experts_routed", self.skip)), mean(cell.known("compute_s", self.skip))
        if not here or not mine:
            return Verdict("top-k", UNKNOWN, "no experts or no compute time in the file")
        worst, compared = None, 0
        for other in self.like(cell, *ARITHMETIC):
            more, theirs = mean(other.known("experts_routed", self.skip)), mean(other.known("compute_s", self.skip))
            if not more or not theirs or here > FEWER * more:
                continue
            compared += 1
            if mine > COMPUTE_RISE * theirs and (worst is None or theirs < worst[1]):
                worst = (other, theirs, more)
        if worst is None:
            return Verdict("top-k", OK if compared else UNKNOWN,
                           "" if compared else "no cell with more experts per token beside it")
        other, theirs, more = worst
        low_high = ratio_interval(self.runs(cell, "compute_s"), self.runs(other, "compute_s"),
                                  f"top-k/{cell.name}/{other.name}", self.seed, self.resamples)
        if low_high and low_high[0] <= 1:
            return Verdict("top-k", OK, "")
        return Verdict("top-k", FLAG, f"computes {seconds(mine)} s per token with {here:.0f} experts, {other.name} "
                       f"{seconds(theirs)} s with {more:.0f}: one of the two was disturbed")

    def faults(self, cell):
        mine = mean(cell.known("majflt", self.skip))
        if mine is None:
            return Verdict("majflt", UNKNOWN, "no major faults in the file")
        others = [mean(c.known("majflt", self.skip)) for c in self.like(cell, "plan.dense_weights", "plan.mode")]
        others = sorted(v for v in others if v is not None)
        if others:
            usual = max(others[(len(others) - 1) // 2], FAULTS)
            if mine >= JUMP * usual:
                return Verdict("majflt", FLAG, f"{mine:.1f} per token, {usual:.1f} in the other cells (median, at least "
                               f"{FAULTS}): memory was taken away")
        for run in cell.runs:
            v = run.known("majflt", self.skip)
            half = len(v) // 2
            if half and mean(v[half:]) >= JUMP * max(mean(v[:half]), FAULTS):
                return Verdict("majflt", FLAG, f"{mean(v[:half]):.1f} per token in the first half, {mean(v[half:]):.1f} in "
                               "the second: memory was taken away")
        return Verdict("majflt", OK, "")

    def slowing(self, cell):
        found, checked = None, False
        for i, run in enumerate(cell.runs):
            v = run.column("loop_s", self.skip)
            third = len(v) // 3
            if len(v) < MIN_TOKENS:
                continue
            checked = True
            ratio = mean(v[-third:]) / mean(v[:third])
            low_high = ratio_interval([v[-third:]], [v[:third]], f"slowing/{cell.name}/{i}", self.seed, self.resamples)
            if ratio >= SLOWER and low_high[0] > 1 and (found is None or ratio > found[0]):
                found = (ratio, low_high, run, third)
        if found is None:
            return Verdict("slowing", OK if checked else UNKNOWN,
                           "" if checked else f"fewer than {MIN_TOKENS} tokens")
        ratio, low_high, run, third = found
        return Verdict("slowing", FLAG, f"last third of the tokens {ratio:.2f} times the first ({low_high[0]:.2f} to "
                       f"{low_high[1]:.2f}); {self.what_grew(run, third)}{self.sensors(run)}")

    def what_grew(self, run, third):
        grew = {}
        for name in ("compute_s", "stall_s", "mgmt_s", "other_s", "overhead_s"):
            v = run.column(name, self.skip)
            first, last = ([x for x in part if x is not None] for part in (v[:third], v[-third:]))
            if first and last:
                grew[name] = mean(last) - mean(first)
        if not grew:
            return "the file does not say what grew"
        name = max(grew, key=grew.get)
        why = {"compute_s": ": heat, a lower clock, or attention over a longer context",
               "stall_s": ": a drive that got slower, or fewer hits"}.get(name, "")
        return f"{name} grew most, by {seconds(grew[name])} s{why}"

    @staticmethod
    def sensors(run):
        out = ""
        for name, unit in (("temp_c", "°C"), ("max_khz", "kHz")):
            v = [x for x in (run.metrics or {}).get(name, []) if x is not None]
            if v:
                out += f"; {name} from {v[0]:g} to {v[-1]:g} {unit}"
        return out

    def drive(self, cell):
        """GB/s: the option, else what the run was told."""
        if self.drive_gb_s:
            return self.drive_gb_s
        try:
            return float(cell.pre("option.drive-gb-s") or 0)
        except ValueError:
            return 0

    def page_cache(self, cell):
        rate = read_rate(cell, self.skip)
        if cell.pre("plan.mode") == "resident" or rate is None:
            return Verdict("page cache", OK if cell.pre("plan.mode") == "resident" else UNKNOWN,
                           "" if cell.pre("plan.mode") == "resident" else "nothing was read")
        if cell.pre("plan.o_direct") == 0:
            return Verdict("page cache", FLAG, f"reads went through the page cache (o_direct=0): {rate / 1e9:.2f} GB/s "
                           "says nothing about the drive")
        drive = self.drive(cell)
        if not drive:
            return Verdict("page cache", UNKNOWN, "the drive's rate is not known (--drive-gb-s)")
        if rate > OVER_DRIVE * 1e9 * drive:
            return Verdict("page cache", FLAG, f"{rate / 1e9:.2f} GB/s while reading, the drive makes {drive:.2f}: "
                           "a cache below answered")
        return Verdict("page cache", OK, "")


    def apart(self, cell):
        means = [mean(r) for r in self.runs(cell, "loop_s")]
        if len(means) < 2:
            return Verdict("runs", UNKNOWN, "one run")
        if max(means) > APART * min(means):
            return Verdict("runs", FLAG, f"from {seconds(min(means))} to {seconds(max(means))} s per token: order, heat or other "
                           "work is in them")
        return Verdict("runs", OK, "")


def read_rate(cell, skip):
    """Bytes per second while at least one read was open; None where nothing was read."""
    total = open_s = 0
    for run in cell.runs:
        for n, s in zip(run.column("read_bytes", skip), run.column("io_s", skip)):
            if n is not None and s is not None:
                total, open_s = total + n, open_s + s
    return total / open_s if total > 0 and open_s > 0 else None

"""Recorded routing (`--route-trace`, docs/telemetry.md): read, and what follows from it.

The reuse distance of a use is the number of distinct experts, of all layers, used since the last use of the same one,
itself included: a least-recently-used cache of n experts hits exactly the uses of distance n or less."""
import math
import re

from analysis.records import Bad, read_header, read_lines, shown

MAX_LAYERS, MAX_BANK, MAX_K = 4096, 1 << 20, 1024
NEEDED = ["phase", "step", "layer", "slot", "expert"]
MIB = 1048576.0


class Visit:
    """One token's experts in one layer, in the router's order."""
    __slots__ = ("turn", "phase", "step", "layer", "experts", "weights", "resident")

    def __init__(self, turn, phase, step, layer):
        self.turn, self.phase, self.step, self.layer = turn, phase, step, layer
        self.experts, self.weights, self.resident = [], [], []


class Trace:
    def __init__(self, path):
        self.path, self.model, self.arch = path, "", ""
        self.n_layer = self.n_expert = self.top_k = 0
        self.expert_bytes = {}  # per layer
        self.visits = []


def whole(text, most, where, what):
    if not re.fullmatch(r"[0-9]{1,12}", text, re.ASCII) or int(text) > most:
        raise Bad(f"{where}: {what} is {shown(text)}, not a number from 0 to {most}")
    return int(text)


def read_preamble(trace, lines):
    for n, line in enumerate(lines, 1):
        where = f"{trace.path}:{n}"
        pairs = dict(p.split("=", 1) for p in line[1:].split(" ") if "=" in p)
        if "n_layer" in pairs:
            trace.model, trace.arch = pairs.get("model", ""), pairs.get("arch", "")
            trace.n_layer = whole(pairs["n_layer"], MAX_LAYERS, where, "n_layer")
            trace.n_expert = whole(pairs.get("n_expert", ""), MAX_BANK, where, "n_expert")
            trace.top_k = whole(pairs.get("n_expert_used", ""), MAX_K, where, "n_expert_used")
            if not trace.n_layer or not trace.n_expert or trace.n_layer * trace.n_expert > MAX_BANK:
                raise Bad(f"{where}: no layers or experts, or more than {MAX_BANK} experts")
        elif "layer" in pairs and "expert_bytes" in pairs:
            layer = whole(pairs["layer"], MAX_LAYERS, where, "layer")
            trace.expert_bytes[layer] = whole(pairs["expert_bytes"], 1 << 40, where, "expert_bytes")
    if not trace.n_layer:
        raise Bad(f"{trace.path}: the preamble gives no n_layer, n_expert and n_expert_used")


def weight_of(text, where):
    try:
        v = float(text)
    except ValueError:
        v = math.nan
    if not math.isfinite(v):
        raise Bad(f"{where}: weight is {shown(text)}, not a number")
    return v


def read_trace(path):
    lines = read_lines(path)
    if not lines or lines[0] != "# route_trace v1":
        raise Bad(f"{path}:1: the first line is not '# route_trace v1'; not written by sluice run --route-trace?")
    head = next((i for i, s in enumerate(lines) if s and not s.startswith("#")), None)
    if head is None:
        raise Bad(f"{path}: no row of column names")
    trace = Trace(path)
    read_preamble(trace, lines[:head])
    names = read_header(lines[head], f"{path}:{head + 1}", NEEDED)
    at = {name: i for i, name in enumerate(names)}
    for n, line in enumerate(lines[head + 1:], head + 2):
        if line and not line.startswith("#"):
            take_row(trace, line.split(","), names, at, f"{path}:{n}")
    if not trace.visits:
        raise Bad(f"{path}: no row of routing")
    return trace


def take_row(trace, fields, names, at, where):
    if len(fields) != len(names):
        raise Bad(f"{where}: {len(fields)} fields, the header has {len(names)}")
    turn = whole(fields[at["turn"]], 1 << 30, where, "turn") if "turn" in at else 0
    phase = whole(fields[at["phase"]], 1, where, "phase")
    step = whole(fields[at["step"]], 1 << 30, where, "step")
    layer = whole(fields[at["layer"]], trace.n_layer - 1, where, "layer")
    slot = whole(fields[at["slot"]], MAX_K, where, "slot")
    expert = whole(fields[at["expert"]], trace.n_expert - 1, where, "expert")
    v = trace.visits[-1] if trace.visits else None
    if v is None or slot == 0 or (v.turn, v.phase, v.step, v.layer) != (turn, phase, step, layer):
        v = Visit(turn, phase, step, layer)
        trace.visits.append(v)
    if slot != len(v.experts):
        raise Bad(f"{where}: slot {slot} comes where slot {len(v.experts)} was expected")
    if expert in v.experts:
        raise Bad(f"{where}: expert {expert} is chosen twice")
    v.experts.append(expert)
    v.weights.append(weight_of(fields[at["weight"]], where) if "weight" in at else 0.0)
    v.resident.append(whole(fields[at["residency"]], 1, where, "residency") if "residency" in at else None)


class Reuse:
    """Distances in one stream of uses: a Fenwick tree counts the experts by the time of their last use."""

    def __init__(self, n_uses):
        self.tree, self.last, self.now = [0] * (n_uses + 1), {}, 0

    def add(self, at, delta):
        while at < len(self.tree):
            self.tree[at] += delta
            at += at & -at

    def before(self, at):
        total = 0
        while at > 0:
            total += self.tree[at]
            at -= at & -at
        return total

    def use(self, key):
        """The distance; None for the first use."""
        self.now += 1
        at = self.last.get(key)
        distance = None
        if at is not None:
            distance = len(self.last) - self.before(at - 1)
            self.add(at, -1)
        self.last[key] = self.now
        self.add(self.now, 1)
        return distance


def bucket(distance):
    """The smallest power of two that is not below the distance, as its exponent."""
    return (distance - 1).bit_length()


def counts(trace, phase, resident=None):
    """[layer][expert]: uses in this phase, or those with this residency."""
    out = [[0] * trace.n_expert for _ in range(trace.n_layer)]
    for v in trace.visits:
        if v.phase == phase:
            row = out[v.layer]
            for expert, there in zip(v.experts, v.resident):
                if resident is None or there == resident:
                    row[expert] += 1
    return out


def mean_weights(trace):
    """[layer][expert]: mean weight where a generated token used it, 0 elsewhere."""
    n = counts(trace, 1)
    total = [[0.0] * trace.n_expert for _ in range(trace.n_layer)]
    for v in trace.visits:
        if v.phase == 1:
            for expert, weight in zip(v.experts, v.weights):
                total[v.layer][expert] += weight
    return [[t / max(k, 1) for t, k in zip(a, b)] for a, b in zip(total, n)]


def reuse_table(trace):
    """Uses of generated tokens by distance (of all layers) and by tokens since the layer's last use. The prompt's
    uses are history, and not counted."""
    reuse = Reuse(sum(len(v.experts) for v in trace.visits))
    by_distance, by_gap, cold, first = {}, {}, 0, 0
    token, order, seen = -1, None, {}
    for v in trace.visits:
        if v.phase == 1 and (v.turn, v.step) != order:
            token, order = token + 1, (v.turn, v.step)
        for expert in v.experts:
            distance = reuse.use((v.layer, expert))
            if v.phase == 0:
                continue
            if distance is None:
                cold += 1
            else:
                by_distance[bucket(distance)] = by_distance.get(bucket(distance), 0) + 1
            gap = token - seen[v.layer, expert] if (v.layer, expert) in seen else None
            if gap is None:
                first += 1
            else:
                by_gap[bucket(gap)] = by_gap.get(bucket(gap), 0) + 1
            seen[v.layer, expert] = token
    return {"cold": cold, "first_in_decode": first, "distance": cumulate(by_distance),
            "tokens_since": cumulate(by_gap)}, token + 1


def cumulate(by_bucket):
    """[(up to, uses, uses so far)]"""
    out, total = [], 0
    for b in range(max(by_bucket, default=-1) + 1):
        total += by_bucket.get(b, 0)
        out.append({"up_to": 1 << b, "uses": by_bucket.get(b, 0), "uses_so_far": total})
    return out


def layer_table(trace, uses, top):
    """Per layer of generated tokens: how many experts, how evenly, which are hot, and what successive tokens share."""
    shared, seen, last = [0] * trace.n_layer, [0] * trace.n_layer, {}
    for v in trace.visits:
        if v.phase == 1:
            if v.layer in last:
                shared[v.layer] += len(last[v.layer] & set(v.experts))
                seen[v.layer] += len(v.experts)
            last[v.layer] = set(v.experts)
    out = []
    for layer, row in enumerate(uses):
        total = sum(row)
        shares = [n / total for n in row if n]
        order = sorted(range(len(row)), key=lambda e, r=row: (-r[e], e))
        out.append({"layer": layer, "uses": total, "distinct": len(shares),
                    # e to the entropy: as many experts, evenly used, would be as hard to foresee
                    "effective": math.exp(-sum(p * math.log(p) for p in shares)) if shares else 0.0,
                    "as_previous_token": shared[layer] / seen[layer] if seen[layer] else None,
                    "hot": [{"expert": e, "uses": row[e], "share": row[e] / total} for e in order[:top] if row[e]]})
    return out


def coverage(trace, uses):
    """How many experts, the most used first, make up a share of all uses, and their MiB where sizes are known."""
    ranked = sorted(((n, layer, e) for layer, row in enumerate(uses) for e, n in enumerate(row) if n), reverse=True)
    total, out, have, mib = sum(r[0] for r in ranked), [], 0, 0.0
    goals = [0.5, 0.8, 0.9, 0.95, 0.99, 1.0]
    for i, (n, layer, _) in enumerate(ranked, 1):
        have, mib = have + n, mib + trace.expert_bytes.get(layer, 0) / MIB
        while goals and have >= goals[0] * total - 1e-9:
            out.append({"share": goals.pop(0), "experts": i, "mib": mib if trace.expert_bytes else None})
    return out


def analyze(trace, top):
    """Everything but the heat maps, as numbers for JSON."""
    uses = counts(trace, 1)
    there = [r for v in trace.visits if v.phase == 1 for r in v.resident if r is not None]
    reuse, n_decode = reuse_table(trace)
    n_uses = sum(map(sum, uses))
    sizes = [trace.expert_bytes[i] for i in range(trace.n_layer) if i in trace.expert_bytes]
    return {"model": trace.model, "arch": trace.arch, "n_layer": trace.n_layer, "n_expert": trace.n_expert,
            "top_k": trace.top_k, "prompt_tokens": len({(v.turn, v.step) for v in trace.visits if v.phase == 0}),
            "decode_tokens": n_decode, "decode_uses": n_uses,
            "expert_mib": sum(sizes) / len(sizes) / MIB if sizes else None,
            "resident": sum(there) / len(there) if there else None,
            "reuse": reuse, "coverage": coverage(trace, uses), "layers": layer_table(trace, uses, top)}

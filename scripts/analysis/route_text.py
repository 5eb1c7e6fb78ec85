"""What route-analyze.py prints."""
from analysis.records import one_line

SHADES = " .:-=+*#%@"
COLUMNS = 64  # of the heat map; more experts share one


def percent(part, whole):
    return f"{100 * part / whole:6.1f}" if whole else "     -"


def heat_lines(uses):
    """A row per layer, experts from left to right; the darkest mark is the layer's most used place."""
    n = len(uses[0])
    width = min(n, COLUMNS)
    out = []
    for layer, row in enumerate(uses):
        cells = [sum(row[i * n // width:(i + 1) * n // width]) for i in range(width)]
        most = max(cells)
        marks = "".join(SHADES[0 if c == 0 else 1 + c * (len(SHADES) - 2) // most] for c in cells)
        out.append(f"{layer:5} |{marks}|")
    return out


def reuse_lines(d):
    total, mib = d["decode_uses"], d["expert_mib"]
    out = ["reuse distance: distinct experts of all layers since the last use; LRU would hit the share so far",
           f"{'experts':>10} {'MiB':>10} {'uses %':>7} {'so far %':>9}"]
    for r in d["reuse"]["distance"]:
        size = f"{r['up_to'] * mib:10.0f}" if mib is not None else f"{'-':>10}"
        out.append(f"{r['up_to']:10} {size}  {percent(r['uses'], total)}    {percent(r['uses_so_far'], total)}")
    out.append(f"{'never before':>21}  {percent(d['reuse']['cold'], total)}")
    out += ["", "tokens since the same layer used it", f"{'up to':>10} {'uses %':>7} {'so far %':>9}"]
    for r in d["reuse"]["tokens_since"]:
        out.append(f"{r['up_to']:10}  {percent(r['uses'], total)}    {percent(r['uses_so_far'], total)}")
    out.append(f"{'first':>10}  {percent(d['reuse']['first_in_decode'], total)}")
    return out


def layer_lines(layers):
    out = ["layer distinct effective as previous %  hot experts (share of the layer's uses, %)"]
    for r in layers:
        same = "-" if r["as_previous_token"] is None else f"{100 * r['as_previous_token']:.1f}"
        hot = " ".join(f"{h['expert']}:{100 * h['share']:.1f}" for h in r["hot"])
        out.append(f"{r['layer']:5} {r['distinct']:8} {r['effective']:9.1f} {same:>13}  {hot}")
    return out


def to_text(d, uses):
    out = [f"{one_line(d['model'])}: {d['n_layer']} layers x {d['n_expert']} experts, {d['top_k']} per token; "
           f"{d['prompt_tokens']} prompt tokens, {d['decode_tokens']} generated, which used {d['decode_uses']} experts"]
    if d["resident"] is not None:
        out.append(f"in the cache when asked for, in the recorded run: {100 * d['resident']:.1f} %")
    if not d["decode_uses"]:
        return "\n".join(out + ["no generated token: nothing to say about reuse"]) + "\n"
    out += ["", "so many experts make up this share of the uses",
            f"{'share %':>10} {'experts':>8} {'MiB':>10}"]
    for r in d["coverage"]:
        mib = "-" if r["mib"] is None else f"{r['mib']:.0f}"
        out.append(f"{100 * r['share']:10.0f} {r['experts']:8} {mib:>10}")
    out += [""] + reuse_lines(d) + [""] + layer_lines(d["layers"])
    out += ["", "uses by layer and expert, generated tokens"] + heat_lines(uses)
    return "\n".join(out) + "\n"

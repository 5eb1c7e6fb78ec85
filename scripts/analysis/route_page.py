"""The viewer page of a recorded routing: route_page.html with the numbers in it."""
import json
import os

from analysis.routes import counts, mean_weights

MARK = "@DATA@"


def maps_of(trace):
    """Heat maps, [layer][expert]."""
    weights = [[round(w, 5) for w in row] for row in mean_weights(trace)]
    out = {"decode_uses": counts(trace, 1), "prompt_uses": counts(trace, 0), "mean_weight": weights}
    if any(r is not None for v in trace.visits for r in v.resident):
        out["decode_misses"] = counts(trace, 1, 0)
    return out


def tokens_of(trace, most):
    """Generated tokens: {step, layers: [[layer, [experts], [was in the cache: 0, 1 or null]]]}"""
    out, order = [], None
    for v in trace.visits:
        if v.phase != 1:
            continue
        if (v.turn, v.step) != order:
            if len(out) == most:
                break
            order = (v.turn, v.step)
            out.append({"turn": v.turn, "step": v.step, "layers": []})
        out[-1]["layers"].append([v.layer, v.experts, v.resident])
    return out


def to_html(trace, figures, maps, most):
    data = json.dumps({**figures, "maps": maps, "tokens": tokens_of(trace, most)}, allow_nan=False,
                      separators=(",", ":"))
    # "<" could end the element that the data stand in; inside JSON it can be written otherwise.
    data = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "route_page.html"), encoding="utf-8") as f:
        before, after = f.read().split(MARK)
    return before + data + after

#!/usr/bin/env python3
"""scripts/route-analyze.py: its figures against slow definitions of them, the page in a browser, broken and hostile
files."""
import argparse
import html
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

from kit import ROOT, check, dump_dom, failures, find_browser, finish, script, write

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from analysis import route_text, routes  # noqa: E402  pylint: disable=wrong-import-position
from analysis.records import Bad  # noqa: E402  pylint: disable=wrong-import-position

EVIL = "</script><script>document.title='bad'</script><img/src=x/onerror=alert(1)>"
COLUMNS = "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes"


def trace_text(rows, model="tiny", layers=3, experts=8, k=2):
    """rows: (phase, step, layer, slot, expert, weight, residency)"""
    out = ["# route_trace v1", f"# model={model} arch=test n_layer={layers} n_expert={experts} n_expert_used={k}"]
    out += [f"# layer={i} expert_bytes={(i + 1) << 20} dense_bytes=10" for i in range(layers)]
    out.append(COLUMNS)
    out += [f"0,{phase},{step},{layer},{slot},{expert},{weight},{there},0"
            for phase, step, layer, slot, expert, weight, there in rows]
    return "\n".join(out) + "\n"


def random_rows(seed, layers=3, experts=8, k=2, prompt=4, decode=30):
    """A prompt in one batch (layer by layer), then tokens; few experts are much used."""
    rng, rows = random.Random(seed), []

    def visit(phase, step, layer):
        chosen = []
        while len(chosen) < k:
            e = min(int(rng.expovariate(0.5)), experts - 1)
            if e not in chosen:
                chosen.append(e)
        rows.extend((phase, step, layer, slot, e, round(rng.random(), 3), rng.randrange(2))
                    for slot, e in enumerate(chosen))
    for layer in range(layers):
        for step in range(prompt):
            visit(0, step, layer)
    for step in range(prompt, prompt + decode):
        for layer in range(layers):
            visit(1, step, layer)
    return rows


def analyze(path, *args):
    p = script("route-analyze.py", path, "--json", "-", *args)
    check(p.returncode == 0 and p.stderr == "", f"{path} {args}: {p.stderr}")
    return json.loads(p.stdout or "{}")


def lru_hits(rows, size):
    """Uses of generated tokens that a least-recently-used cache of this size would hit."""
    cache, hits = [], 0
    for phase, _, layer, _, expert, _, _ in rows:
        key = (layer, expert)
        if key in cache:
            cache.remove(key)
            hits += phase
        cache.append(key)
        del cache[:-size]
    return hits


def check_figures(seed):
    rows = random_rows(seed)
    write("t.csv", trace_text(rows))
    d = analyze("t.csv")
    check((d["prompt_tokens"], d["decode_tokens"], d["decode_uses"]) == (4, 30, 180), "counts")
    for r in d["reuse"]["distance"]:
        check(r["uses_so_far"] == lru_hits(rows, r["up_to"]), f"reuse up to {r['up_to']}")
    check(d["reuse"]["distance"][-1]["uses_so_far"] + d["reuse"]["cold"] == 180, "cold")
    check(sum(r["uses"] for r in d["reuse"]["tokens_since"]) + d["reuse"]["first_in_decode"] == 180, "gaps")
    uses = [[0] * 8 for _ in range(3)]
    for phase, _, layer, _, expert, _, _ in rows:
        uses[layer][expert] += phase
    check(d["maps"]["decode_uses"] == uses, "heat map")
    missed = sum(1 for r in rows if r[0] == 1 and r[6] == 0)
    check(sum(map(sum, d["maps"]["decode_misses"])) == missed and abs(d["resident"] - 1 + missed / 180) < 1e-9, "misses")
    check(sum(map(sum, d["maps"]["prompt_uses"])) == 24, "the prompt's uses")
    for layer, r in enumerate(d["layers"]):
        share = [n / 60 for n in uses[layer] if n]
        check(abs(r["effective"] - math.exp(-sum(p * math.log(p) for p in share))) < 1e-9, "effective")
        check(r["hot"][0]["uses"] == max(uses[layer]) and r["distinct"] == len(share), "hot experts")
    sets = [{r[4] for r in rows if r[:3] == (1, 4 + i, 1)} for i in range(30)]
    same = sum(len(a & b) for a, b in zip(sets, sets[1:])) / 58
    check(abs(d["layers"][1]["as_previous_token"] - same) < 1e-9, "as the previous token")
    ranked = sorted((n for row in uses for n in row), reverse=True)
    for r in d["coverage"]:
        check(sum(ranked[:r["experts"]]) >= r["share"] * 180 > sum(ranked[:r["experts"] - 1]), f"coverage {r}")
    weights = [r[5] for r in rows if r[0] == 1 and r[2] == 0 and r[4] == d["layers"][0]["hot"][0]["expert"]]
    shown = d["maps"]["mean_weight"][0][d["layers"][0]["hot"][0]["expert"]]
    check(abs(shown - sum(weights) / len(weights)) < 1e-5, "mean weight")


def check_text():
    p = script("route-analyze.py", "t.csv", "--top", "1")
    check(p.returncode == 0 and p.stdout.startswith("tiny: 3 layers x 8 experts, 2 per token; 4 prompt"), p.stdout[:80])
    check(len(re.findall(r"^ +\d \|[ .:\-=+*#%@]{8}\|$", p.stdout, re.M)) == 3, "heat map as text")
    # One token after another uses the same two experts of one layer: distance 2, one token.
    rows = [(1, s, 0, k, e, 0.5, 1) for s in range(5) for k, e in enumerate((3, 5))]
    write("same.csv", trace_text(rows, layers=1))
    d = analyze("same.csv")
    check(d["reuse"] == {"cold": 2, "first_in_decode": 2, "distance": [
        {"up_to": 1, "uses": 0, "uses_so_far": 0}, {"up_to": 2, "uses": 8, "uses_so_far": 8}],
        "tokens_since": [{"up_to": 1, "uses": 8, "uses_so_far": 8}]}, f"same {d['reuse']}")
    write("prompt.csv", trace_text([(0, 0, 0, 0, 1, 0.5, 0)]))
    p = script("route-analyze.py", "prompt.csv", "--html", "prompt.html")
    check(p.returncode == 0 and "no generated token" in p.stdout, f"a prompt alone: {p.stderr}")


GOOD = trace_text([(1, 0, 0, 0, 1, 0.5, 1), (1, 0, 0, 1, 2, 0.25, 1)])
BROKEN = {
    "empty": ("", ":1: the first line"),
    "other": ("# sluice csv v1\n", ":1: the first line"),
    "no rows": (GOOD[:GOOD.index("0,1,0")], "no row of routing"),
    "no header": ("# route_trace v1\n", "no row of column names"),
    "no shape": (GOOD.replace("n_layer", "layers"), "the preamble gives no n_layer"),
    "huge": (GOOD.replace("n_expert=8", "n_expert=1048576"), "more than 1048576 experts"),
    "none": (GOOD.replace("n_layer=3", "n_layer=0"), "no layers or experts"),
    "column": (GOOD.replace(",expert,", ",expertise,"), "no column expert"),
    "fields": (GOOD + "1,2,3\n", "3 fields, the header has 9"),
    "layer": (GOOD + "0,1,1,3,0,1,0.5,1,0\n", "layer is '3', not a number from 0 to 2"),
    "expert": (GOOD + "0,1,1,0,0,8,0.5,1,0\n", "expert is '8', not a number from 0 to 7"),
    "negative": (GOOD + "0,1,1,0,0,-1,0.5,1,0\n", "expert is '-1'"),
    "phase": (GOOD + "0,2,1,0,0,1,0.5,1,0\n", "phase is '2'"),
    "slot": (GOOD + "0,1,1,0,1,1,0.5,1,0\n", "slot 1 comes where slot 0"),
    "gap": (GOOD + "0,1,0,0,3,1,0.5,1,0\n", "slot 3 comes where slot 2"),
    "twice": (GOOD + "0,1,0,0,2,1,0.5,1,0\n", "expert 1 is chosen twice"),
    "weight": (GOOD + "0,1,1,0,0,1,inf,1,0\n", "weight is 'inf'"),
    "digits": (GOOD + "0,1,1,0,0,\u0661,0.5,1,0\n", "expert is"),
}


def check_broken():
    for name, (text, what) in BROKEN.items():
        write("broken.csv", text)
        p = script("route-analyze.py", "broken.csv", "--html", "never.html", "--json", "never.json")
        check(p.returncode == 1 and p.stderr.startswith("route-analyze: ") and p.stderr.count("\n") == 1
              and what in p.stderr, f"{name}: {p.returncode} {p.stderr!r}, expected {what!r}")
        check(not os.path.exists("never.html") and not os.path.exists("never.json"), f"{name}: something was written")
    p = script("route-analyze.py", "none.csv")
    check(p.returncode == 1 and "No such file" in p.stderr, p.stderr)
    p = script("route-analyze.py", "t.csv", "--html", "no/such/folder.html")
    check(p.returncode == 1 and p.stderr.count("\n") == 1, f"a page that cannot be written: {p.stderr}")


def check_mutants():
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    for i in range(200):
        data = bytearray(trace_text(random_rows(i, decode=2)).encode())
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data))
            data[at:at + rng.randrange(3)] = bytes(rng.choice(b"\0\n#,=-.019 _\xff") for _ in range(rng.randrange(3)))
        with open("mutant.csv", "wb") as f:
            f.write(data)
        try:
            trace = routes.read_trace("mutant.csv")
            figures = routes.analyze(trace, 3)
            route_text.to_text(figures, routes.counts(trace, 1))
        except Bad as e:
            check(str(e).startswith("mutant.csv") and "\n" not in str(e), f"seed {seed}: {e!r}")
        except Exception as e:  # pylint: disable=broad-except
            check(False, f"seed {seed}, file {i}: {e!r}")
            return


# Runs in a copy of the page: what a user would do, and what the canvas shows then.
PROBE = """<script>
const out = [], box = $("heat").getBoundingClientRect(), wide = (box.width - ROWS_LEFT) / D.n_expert;
function pixel(layer, column) {
  const r = window.devicePixelRatio || 1;
  return [...$("heat").getContext("2d").getImageData((ROWS_LEFT + (column + .5) * wide) * r,
                                                     (layer + .5) * rowHeight() * r, 1, 1).data].join();
}
function mouse(kind, layer, column) {
  $("heat").dispatchEvent(new MouseEvent(kind, {clientX: box.left + ROWS_LEFT + (column + .5) * wide,
                                                clientY: box.top + (layer + .5) * rowHeight(), bubbles: true}));
}
const hot = D.layers[1].hot[0].expert, cold = D.maps.decode_uses[1].indexOf(0);
out.push(["hot", pixel(1, hot)], ["cold", pixel(1, cold)]);
mouse("click", 1, hot);
out.push(["says", $("at").textContent], ["layer", $("layer_title").textContent],
         ["chosen", document.querySelectorAll("#layers tr.chosen td")[0].textContent]);
$("order").value = "heat"; $("order").dispatchEvent(new Event("change"));
out.push(["first", pixel(1, 0)]);
$("token").value = 2; $("token").dispatchEvent(new Event("input"));
out.push(["token", $("token_says").textContent]);
$("map").value = "decode_misses"; $("map").dispatchEvent(new Event("change"));
out.push(["map", $("layer_title").textContent]);
const pre = document.createElement("pre");
pre.id = "probe"; pre.textContent = JSON.stringify(out);
document.body.appendChild(pre);
</script></body>"""


def check_page(browser):
    rows = [r for r in random_rows(11) if (r[2], r[4]) != (1, 7)]  # expert 7 of layer 1 is never used
    rows = [r for r in rows if r[3] == 0]
    write("page.csv", trace_text(rows, model=EVIL))
    d = analyze("page.csv", "--html", "page.html")
    with open("page.html", encoding="utf-8") as f:
        text = f.read()
    check("@DATA@" not in text and EVIL not in text and text.count("</script>") == 2, "the data end their element")
    analyze("t.csv" if os.path.exists("t.csv") else "page.csv", "--html", "harmless.html")
    with open("harmless.html", encoding="utf-8") as f:
        other = f.read().replace(json.dumps(EVIL)[1:-1].replace("<", "\\u003c").replace(">", "\\u003e"), "")
    check(not re.search(r"(src|href)\s*=|https?://(?!www\.w3\.org/2000/svg)|@import|url\(", other),
          "the page needs other files")
    if browser is None:
        return
    write("probe.html", text.replace("</body>", PROBE))
    dom = dump_dom(browser, "probe.html", "profile")
    check('data-ready="1"' in dom, f"the page did not start: {dom[-300:]}")
    found = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.S)
    if not found:
        check(False, "the probe did not run")
        return
    got = dict(json.loads(html.unescape(found.group(1))))
    hot = d["layers"][1]["hot"][0]
    check(got["hot"] != got["cold"] and got["first"] == got["hot"], f"colours {got}")
    check(got["says"].startswith(f"layer 1, expert {hot['expert']}: {hot['uses']} uses"), got["says"])
    check(got["layer"].startswith("Layer 1: uses by generated") and got["chosen"] == "1", f"layer {got}")
    check(got["token"].startswith("position 6: ") and "Layer 1: reads" in got["map"], f"token {got}")
    # What is looked for is not there when the page's script fails.
    at = text.rindex("<script>") + len("<script>")
    write("broken.html", text[:at] + "throw 1;" + text[at:])
    check('data-ready="1"' not in dump_dom(browser, "broken.html", "profile"), "a broken script is not noticed")
    check("<title>Routing: &lt;/script&gt;" in dom and "<img" not in dom, "the model's name became markup")


def check_real(program, emulator):
    model = os.path.join(ROOT, "models", "storyteller.gguf")
    p = subprocess.run(emulator.split() + [program, "run", "-m", model, "-p", "Once", "-n", "6", "--ignore-eos",
                                           "--moe-stream", "--route-trace", "real.csv", "--csv", "tokens.csv"],
                       capture_output=True, timeout=240, check=False, stdin=subprocess.DEVNULL)
    check(p.returncode == 0, f"run: {p.stderr!r}")
    d = analyze("real.csv")
    with open("tokens.csv", encoding="utf-8") as f:
        lines = [s for s in f.read().splitlines() if not s.startswith("#")]
    at = lines[0].split(",").index("experts_routed")
    check(d["decode_uses"] == sum(int(s.split(",")[at]) for s in lines[1:]), "uses as in --csv")
    check(d["expert_mib"] > 0 and d["resident"] is not None, "sizes and residency")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--program", required=True)
    a.add_argument("--emulator", default="")
    a.add_argument("--browser", action="store_true", help="the page in a browser alone; 77 where there is none")
    a = a.parse_args()
    program, browser = os.path.abspath(a.program), find_browser()
    if a.browser and browser is None:
        print("no Chromium here: the page is not tried in a browser")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if a.browser:
            check_page(browser)
        else:
            for seed in (1, 2, 3):
                check_figures(seed)
                if failures:
                    print(f"seed {seed}")
                    break
            check_text()
            check_broken()
            check_mutants()
            check_page(None)
            check_real(program, a.emulator)
        os.chdir("/")
    finish()


if __name__ == "__main__":
    main()

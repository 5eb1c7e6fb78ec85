#!/usr/bin/env python3
"""scripts/bench-analyze.py: its figures, its doubts, what it makes of broken files and of hostile text in them."""
import argparse
import html.parser
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from kit import ROOT, check, dump_dom, find_browser, finish, run_csv, script, token, write

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from analysis.records import Bad, read_metrics, read_run  # noqa: E402  pylint: disable=wrong-import-position

EVIL = '<img src=x onerror=alert(1)>|"$x_'
NAME = EVIL.replace("=", " ")  # of a cell, where = ends the name


def table(summary, title):
    """Rows of the first table that has this column, as dicts by column."""
    lines = summary.splitlines()
    for i, line in enumerate(lines):
        names = [c.strip() for c in line.strip("|").split(" | ")]
        if line.startswith("| cell") and title in names:
            rows = []
            for row in lines[i + 2:]:
                if not row.startswith("|"):
                    break
                rows.append(dict(zip(names, (c.strip() for c in row[2:-2].split(" | ")))))
            return {r["cell"]: r for r in rows}
    check(False, f"no table with {title}")
    return {}


def analyze(*args):
    shutil.rmtree("out", ignore_errors=True)
    p = script("bench-analyze.py", "--no-matplotlib", "-o", "out", *args)
    check(p.returncode == 0 and p.stderr == "", f"{args}: {p.stderr}")
    with open("out/summary.md", encoding="utf-8") as f:
        return p, f.read()


def check_figures():
    # 8 slow tokens to be left out, then 0.01 .. 0.20, shuffled.
    times = [i / 100 for i in range(1, 21)]
    random.Random(5).shuffle(times)
    write("a.csv", run_csv([token(9)] * 8 + [token(t) for t in times]))
    write("a.metrics", "seconds,rss_mib,mem_available_mib,temp_c,max_khz,psi_some_avg10\n"
          "0,90,4100,40,2000000,0\n0.5,120,,55,1500000,1.5\n1,110,4000,,,\n")
    p, text = analyze("a.csv")
    row = table(text, "median s")["a"]
    want = {"runs": "1", "tokens": "20", "mean s": "0.1050", "median s": "0.1000", "p5 s": "0.0100", "p95 s": "0.1900",
            "min s": "0.0100", "max s": "0.2000", "tok/s": "9.52"}
    check(all(row[k] == v for k, v in want.items()), f"times {row}")
    low, high = (float(v) for v in row["95 % interval"].split(" to "))
    check(0.07 < low < 0.1 < 0.11 < high < 0.14, f"interval {row}")
    row = table(text, "hit %")["a"]
    want = {"compute s": "0.0600", "stall s": "0.0300", "hit %": "75.0", "MiB": "50.0", "MiB/s": "1000", "CPU s": "",
            "dropped %": "0.00"}
    check(all(row[k] == v for k, v in want.items()), f"parts {row}")
    row = table(text, "PSI some max %")["a"]
    want = {"RSS peak MiB": "120", "MemAvailable floor MiB": "4000", "PSI some max %": "1.50", "°C first / max": "40 / 55",
            "clock limit MHz max / min": "2000 / 1500", "dense resident min %": ""}
    check(all(row[k] == v for k, v in want.items()), f"pressure {row}")
    check(sorted(os.listdir("out")) == ["hit_rate.svg", "memory.svg", "report.html", "summary.md", "token_times.svg"],
          f"files {os.listdir('out')}")
    again = analyze("a.csv")[1]
    check(again == text, "the same seed gave another summary")
    check(analyze("--seed", "2", "a.csv")[1] != text, "another seed gave the same intervals")
    check(table(analyze("--skip", "0", "a.csv")[1], "tokens")["a"]["max s"] == "9.0000", "--skip 0")
    check(p.stdout.startswith("cells: 1;"), p.stdout)
    write("fast.csv", run_csv([token(0.000612)] * 9))
    check(table(analyze("fast.csv")[1], "tokens")["fast"]["mean s"] == "0.000612", "a short time")


def noisy(mean, rng, **more):
    return token(mean * rng.uniform(0.98, 1.02), **more)


def states(text):
    names = {"top-k": "compute time rises as top-k falls", "majflt": "major faults jump tenfold",
             "slowing": "tokens slow down over the run", "cache": "reads faster than the drive", "runs": "runs differ"}
    return {cell: {k: row[v] for k, v in names.items()} for cell, row in table(text, names["top-k"]).items()}


def check_tells():
    rng = random.Random(7)
    steady = [noisy(0.1, rng) for _ in range(40)]
    write("steady.csv", run_csv(steady))
    write("hot.csv", run_csv([noisy(0.1 + 0.001 * i, rng, compute_s=0.06 + 0.001 * i) for i in range(40)]))
    write("faults.csv", run_csv([noisy(0.1, rng, majflt=3) for _ in range(40)]))
    write("later.csv", run_csv([noisy(0.1, rng, majflt=0 if i < 24 else 4) for i in range(40)], {"model.name": "alone"}))
    write("k4.csv", run_csv([noisy(0.1, rng, experts_routed=20, compute_s=0.08) for _ in range(40)]))
    write("drops.csv", run_csv([noisy(0.1, rng, compute_s=0.01, experts_dropped=20) for _ in range(40)],
                               {"option.drop-cold-experts": "1"}))
    write("k2.csv", run_csv([noisy(0.1, rng, experts_routed=10, compute_s=0.03) for _ in range(40)]))
    write("buffered.csv", run_csv(steady, {"plan.o_direct": 0}))
    write("resident.csv", run_csv([{"loop_s": 0.1}] * 12, {"plan.mode": "resident"}))
    names = ["steady", "hot", "faults", "later", "k4", "k2", "drops", "buffered", "resident"]
    p, text = analyze("--drive-gb-s", "1.2", *(n + ".csv" for n in names))
    found = states(text)
    flagged = {(c, k) for c, row in found.items() for k, v in row.items() if v == "FLAG"}
    check(flagged == {("hot", "slowing"), ("faults", "majflt"), ("later", "majflt"), ("k4", "top-k"),
                      ("buffered", "cache")}, f"flags {flagged}")
    check(p.stdout.count("flag: ") == 5, p.stdout)
    check("compute\\_s grew most" in text, "what grew")
    check(found["k2"]["top-k"] == "ok" and found["later"]["top-k"] == "not checked", f"top-k {found}")
    check(found["resident"] == {"top-k": "not checked", "majflt": "not checked", "slowing": "not checked",
                                "cache": "ok", "runs": "not checked"}, f"resident {found['resident']}")
    found = states(analyze("--drive-gb-s", "0.9", "steady.csv")[1])
    check(found["steady"]["cache"] == "FLAG", "1.05 GB/s from a drive of 0.9")
    found = states(analyze("steady.csv")[1])
    check(found["steady"]["cache"] == "not checked", "a rate that nobody knows")
    write("told.csv", run_csv(steady, {"option.drive-gb-s": "0.9"}))
    check(states(analyze("told.csv")[1])["told"]["cache"] == "FLAG", "the rate that the run was told")
    rows = table(analyze("steady.csv", "x=hot.csv", "x=faults.csv", "steady2=steady.csv")[1], "time by that of steady")
    check(rows["x"][""] == "slower" or float(rows["x"]["time by that of steady"]) > 1.05, f"against {rows}")
    check(rows["steady2"][""] == "no difference seen", f"against itself {rows}")


def check_index():
    os.mkdir("matrix")
    rng = random.Random(3)
    for name, t in (("a1", 0.1), ("a2", 0.12), ("b1", 0.2), ("b2", 0.2)):
        write(f"matrix/{name}.csv", run_csv([noisy(t, rng) for _ in range(30)]))
    write("matrix/odd.txt", "seconds,temp_c\n0,77\n")
    head = "cell,pass,model,config,options,waited_s,gave_up,exit,tok_s,csv,metrics\n"
    rows = ['1,1,"m.gguf","a","--x ""1,2""",0,,0,9,a1.csv,odd.txt', '2,1,"m.gguf","b","",180,temperature,0,9,b1.csv,',
            '3,1,"m.gguf","c","",0,,3,,c1.csv,', '4,2,"m.gguf","b","",0,,0,9,b2.csv,', '5,2,"m.gguf","a","",0,,0,9,a2.csv,']
    write("matrix/index.csv", head + "\n".join(rows) + "\n")
    p, text = analyze("matrix")
    times = table(text, "median s")
    check(list(times) == ["a", "b"] and times["a"]["runs"] == "2", f"cells {times}")
    check([row["runs"] for row in states(text).values()] == ["FLAG", "ok"], "0.10 and 0.12 s are runs that differ")
    check("flag: c: pass 1 failed with exit status 3\n" in p.stdout and "pass 1 began although" in p.stdout, p.stdout)
    check(table(text, "PSI some max %")["a"]["°C first / max"] == "77 / 77", "metrics by the index")
    write("matrix/index.csv", head + "\n".join(r.replace("m.gguf", "/x/n.gguf") if r[0] in "15" else r for r in rows) + "\n")
    check(list(table(analyze("matrix")[1], "median s")) == ["n.gguf, a", "m.gguf, b"], "two models")
    for broken, what in ((head + rows[0].replace("a1.csv", "../a.csv"), ":2: '../a.csv' is not the name of a file"),
                         (head + rows[0].replace("a1.csv", ""), "'' is not the name"), (head + "1,2\n", ":2: 2 fields"),
                         (head.replace("config", "x"), ":1: no column config"), (head + rows[2], "every run failed: c"),
                         (head + '1,"', "index.csv: ")):
        write("matrix/index.csv", broken)
        refused(what, "matrix")


class Elements(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.links = [], "", []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href")]
        check(not any(k.startswith("on") for k, _ in attrs), f"a handler in <{tag}>")

    def handle_data(self, data):
        self.text += data


def check_hostile():
    write("e.csv", run_csv([token()] * 12, {"model.name": EVIL, "plan.marks": EVIL, f"option.{NAME}": EVIL}))
    _, text = analyze(NAME + "=e.csv", "b=e.csv")
    check(not re.search(r"(?<!\\)<img", text), "markup in summary.md")
    with open("out/report.html", encoding="utf-8") as f:
        page = Elements()
        page.feed(f.read())
    check("script" not in page.tags and page.tags.count("img") == 3, f"tags {set(page.tags)}")
    check(EVIL in page.text and NAME in page.text, "the name is not shown as it is")
    check(all(s.startswith("data:image/svg+xml;base64,") for s in page.links), "the page needs other files")
    for name in ("token_times.svg", "memory.svg"):
        with open("out/" + name, encoding="utf-8") as f:
            check("<img" not in f.read(), f"markup in {name}")


GOOD = run_csv([token()] * 12)
HEADER = next(s for s in GOOD.splitlines() if not s.startswith("#"))
BROKEN = {
    "empty": ("", ":1: the first line"),
    "other": ("a,b\n1,2\n", ":1: the first line"),
    "cut": (GOOD[:GOOD.index("# summary")], "no '# summary'"),
    "no header": ("# sluice csv v1\n# summary\n", "no row of column names"),
    "fields": (GOOD.replace("\n# summary", ",1\n# summary"), "fields, the header has"),
    "text": (GOOD.replace(",0.1,", ",fast,", 1), "is 'fast', not a number"),
    "nan": (GOOD.replace(",0.1,", ",nan,", 1), "loop_s is 'nan', not a number"),
    "negative": (GOOD.replace(",0.1,", ",-1,", 1), "loop_s is not above 0"),
    "column": (GOOD.replace("loop_s", "lap_s"), "no column loop_s"),
    "twice": (GOOD.replace("stall_s", "loop_s"), "the same name"),
    "pair": (GOOD.replace('# version="0.1.0"', "# version"), ":2: expected '# name=value'"),
    "json": (GOOD.replace('"0.1.0"', '"0.1.0'), "neither a number nor a string"),
    "deep": (GOOD.replace('"0.1.0"', "[" * 5000), "neither a number nor a string"),
    "tokens": (GOOD.replace("tokens=12", "tokens=13"), "12 rows, but the summary counts '13'"),
    "large": (GOOD.replace(",0.1,", ",1e300,", 1), "not a number of at most 1e+18"),
    "digits": (GOOD.replace('"0.1.0"', "1" * 5000), "neither a number nor a string"),
    "zeros": (GOOD.replace(",0.1,", ",\0,", 1), "not a number"),
    "short": (run_csv([token()] * 8), "8 tokens, nothing is left"),
    "wide": (GOOD.replace(HEADER, HEADER + ",x" * 300), "more than 256 columns"),
}


def refused(what, *args):
    p = script("bench-analyze.py", "-o", "never", *args)
    check(p.returncode == 1, f"{args}: exit {p.returncode}")
    check(p.stderr.startswith("bench-analyze: ") and p.stderr.count("\n") == 1 and what in p.stderr,
          f"{args}: {p.stderr!r}, expected {what!r}")
    check(not os.path.exists("never"), f"{args}: something was written")


def check_broken():
    check("\0" not in GOOD and ",0.1," in GOOD, "the rows of the good file")
    for name, (text, what) in BROKEN.items():
        write("broken.csv", text)
        refused(what, "broken.csv")
        check(True, name)
    refused("No such file", "none.csv")
    refused("no?such: No such file", "no\nsuch")
    os.mkfifo("pipe.csv")
    refused("not a regular file", "pipe.csv")
    os.mkdir("folder")
    refused("no file in it", "folder")
    write("folder/a.csv", GOOD)
    write("folder/notes.csv", "x\n")
    check("a" in table(analyze("folder")[1], "median s"), "a folder")
    write("folder/b.csv", GOOD)
    check(table(analyze("x=folder")[1], "median s")["x"]["runs"] == "2", "a folder as one cell")
    for text, what in (("", "no row of column names"), ("rss_mib\n1\n", "no column seconds"),
                       ("seconds,rss_mib\n1,2\n0,2\n", ":3: seconds are missing or run backwards"),
                       ("seconds,rss_mib\n1,much\n", "rss_mib is 'much'")):
        write("folder/a.metrics.csv", text)
        refused(what, "folder/a.csv")
    write("folder/a.metrics.csv", "seconds\n")
    analyze("folder/a.csv")
    p = script("bench-analyze.py", "--skip", "-1", "folder/a.csv")
    check(p.returncode == 2 and "--skip" in p.stderr, f"--skip -1: {p.stderr}")


def check_mutants():
    """Files with bytes changed, cut and doubled: what is wrong is Bad, nothing else, and what is accepted is reported."""
    seed = random.randrange(1 << 32)
    rng, texts = random.Random(seed), {read_run: GOOD, read_metrics: "seconds,rss_mib\n0,1\n1.5,2\n2,\n"}
    for i in range(400):
        reader = read_run if i % 4 else read_metrics
        data = bytearray(texts[reader].encode())
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(data)) if data else 0
            kind = rng.randrange(3)
            if kind == 0 and data:
                data[at] = rng.choice(b'\0\n\r#,="-.eE90_ n\xff\xe2')
            elif kind == 1:
                del data[at:at + rng.randrange(1, 40)]
            else:
                data[at:at] = data[at:at + rng.randrange(1, 40)]
        with open("mutant.csv", "wb") as f:
            f.write(data)
        try:
            reader("mutant.csv")
        except Bad as e:
            check(str(e).startswith("mutant.csv") and "\n" not in str(e), f"seed {seed}: {e!r}")
        except Exception as e:  # pylint: disable=broad-except
            check(False, f"seed {seed}, file {i}: {e!r}")
            return
    tiny, large = "5e-324", "1e18"
    for value in (tiny, large):
        write("edge.csv", run_csv([token(value, rss_anon_mib=value, mem_available_mib="-" + value)] * 30))
        write("edge.metrics", f"seconds,rss_mib\n{value},{value}\n{value},1\n")
        analyze("edge.csv")
    with open(os.fsencode("odd\x01") + b"\xff.csv", "w", encoding="utf-8") as f:
        f.write(GOOD)
    analyze(os.fsdecode(os.fsencode("odd\x01") + b"\xff.csv"))
    with open("out/memory.svg", encoding="utf-8") as f:
        xml.etree.ElementTree.parse(f)


def check_matplotlib():
    try:
        import matplotlib  # pylint: disable=import-outside-toplevel,unused-import
    except ImportError:
        print("without matplotlib: its plots are not tested")
        return
    p = script("bench-analyze.py", "-o", "out", NAME + "=e.csv", "_b=e.csv")
    check(p.returncode == 0, f"matplotlib: {p.stderr}")
    with open("out/token_times.svg", encoding="utf-8") as f:
        check("matplotlib" in f.read(), "not drawn by matplotlib")


# Runs in a copy of the report without its policy against scripts.
PROBE = """<script>addEventListener("load", () => {
const wide = [...document.images].map(i => i.naturalWidth > 100);
const pre = document.createElement("pre");
pre.id = "probe";
pre.textContent = [wide.join(), document.querySelector("td.flag").textContent, document.querySelectorAll("table").length];
document.body.appendChild(pre); });</script></body>"""


def check_browser(browser):
    write("b.csv", run_csv([token(0.1, majflt=9 * (i >= 24)) for i in range(40)], {"plan.marks": EVIL}))
    analyze(NAME + "=b.csv")
    with open("out/report.html", encoding="utf-8") as f:
        text = f.read()
    write("probe.html", re.sub(r"<meta http-equiv=[^>]*>", "", text).replace("</body>", PROBE))
    dom = dump_dom(browser, "probe.html", "profile")
    check('<pre id="probe">true,true,true,FLAG,5</pre>' in dom, f"the report in a browser: {dom[-400:]}")
    check("onerror=alert(1)&gt;" in dom and "<img src=\"x\"" not in dom, "a mark of the run became markup")
    # A plot that is no picture is seen.
    broken = re.sub(r"base64,.{9}", "base64,", text, count=1)
    write("broken.html", re.sub(r"<meta http-equiv=[^>]*>", "", broken).replace("</body>", PROBE))
    check('<pre id="probe">false,true,true,FLAG,5</pre>' in dump_dom(browser, "broken.html", "profile"),
          "a plot that cannot be shown is not noticed")


def check_real(program, emulator):
    """A file that sluice run has just written."""
    model = os.path.join(ROOT, "models", "storyteller.gguf")
    for mode in ("--moe-stream", "--no-moe-stream"):
        p = subprocess.run(emulator.split() + [program, "run", "-m", model, "-p", "Once", "-n", "10", "--ignore-eos", mode,
                                               "--csv", f"real{mode}.csv"], capture_output=True, timeout=240, check=False,
                           stdin=subprocess.DEVNULL)
        check(p.returncode == 0, f"{mode}: {p.stderr!r}")
    _, text = analyze("--skip", "2", "real--moe-stream.csv", "real--no-moe-stream.csv")
    rows = table(text, "hit %")
    check(rows["real--moe-stream"]["MiB"] != "" and rows["real--no-moe-stream"]["MiB"] == "", f"real {rows}")
    check(all(float(r["compute s"]) > 0 for r in rows.values()), f"real {rows}")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--program", required=True)
    a.add_argument("--emulator", default="")
    a.add_argument("--browser", action="store_true", help="the report in a browser alone; 77 where there is none")
    a = a.parse_args()
    program, browser = os.path.abspath(a.program), find_browser()
    if a.browser and browser is None:
        print("no Chromium here: the report is not tried in a browser")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if a.browser:
            check_browser(browser)
        else:
            check_figures()
            check_tells()
            check_index()
            check_hostile()
            check_broken()
            check_mutants()
            check_matplotlib()
            check_real(program, a.emulator)
        os.chdir("/")
    finish()


if __name__ == "__main__":
    main()

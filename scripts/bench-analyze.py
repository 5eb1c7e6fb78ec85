#!/usr/bin/env python3
"""Tables, plots and doubts of recorded runs: the --csv files of sluice run, or a folder of them.

Each argument is a FILE, a NAME=FILE (several with one NAME are runs of one cell), a folder with such files, that of
scripts/bench-matrix.sh, say, whose index names the cells, or NAME=DIR, whose files are runs of one cell. Metrics of
scripts/bench-run.sh are taken from FILE's name with .metrics or .metrics.csv instead of .csv. Writes summary.md, the
plots, and report.html, which needs no other file. docs/analysis.md explains every figure."""
import argparse
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from analysis import page, plots, tables, tells  # noqa: E402  pylint: disable=wrong-import-position
from analysis.records import Bad, one_line, read_cells  # noqa: E402  pylint: disable=wrong-import-position


def at_least(low):
    def parse(text):
        v = int(text)
        if v < low or v > 10**6:
            raise ValueError(text)
        return v
    parse.__name__ = f"number from {low} to 1000000"
    return parse


def rate(text):
    v = float(text)
    if not 0 < v < 1e6:
        raise ValueError(text)
    return v


def parse_arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("runs", nargs="+", metavar="[NAME=]FILE|DIR")
    a.add_argument("--skip", type=at_least(0), default=8, metavar="N",
                   help="tokens at the beginning of each run that are left out of the tables (default 8)")
    a.add_argument("--out", "-o", default="bench-report", metavar="DIR", help="where to write (default bench-report)")
    a.add_argument("--drive-gb-s", type=rate, default=0, metavar="X",
                   help="what the drive makes at the request size (sluice iobench), to find reads that a cache answered")
    a.add_argument("--resamples", type=at_least(100), default=2000, metavar="N",
                   help="of the bootstrap (default 2000)")
    a.add_argument("--seed", type=int, default=1, metavar="N", help="of the bootstrap (default 1)")
    a.add_argument("--no-matplotlib", action="store_true", help="draw the plots without it even where it is there")
    return a.parse_args()


def marks(cells):
    """What makes a cell's text another than the model's own."""
    return [f"{c.name}: {m}" for c in cells for m in sorted({str(r.pre.get("plan.marks") or "") for r in c.runs}) if m]


def differing(cell):
    """Options and plan in which the runs of one cell are not alike: then it is not one cell."""
    skip = {"plan.total_mib", "plan.limit_mib"} | {
        "option." + o for o in "csv seed route-trace io-trace compute-trace logits-out ids-out experts-out".split()}
    keys = sorted({k for r in cell.runs for k in r.pre} - skip)
    return [k for k in keys if len({r.pre.get(k) for r in cell.runs}) > 1]


def doubts(cells, lost, judge):
    """Lines for what was flagged, the table of all checks, and lines for what could not be checked."""
    lines, rows, unchecked = list(lost), [], set()
    for cell in cells:
        found = judge.judge(cell)
        rows.append([cell.name] + [v.state for v in found])
        lines += [f"{cell.name}: {tells.TITLES[v.tell]}: {v.text}" for v in found if v.state == tells.FLAG]
        lines += [f"{cell.name}: {note}" for note in cell.notes]
        unchecked |= {f"{tells.TITLES[v.tell]}: {v.text}" for v in found if v.state == tells.UNKNOWN}
        if differing(cell):
            lines.append(f"{cell.name}: its runs differ in {', '.join(differing(cell)[:6])}")
    return lines, rows, sorted(unchecked)


def report(a, cells, lost):
    t = tables.Tables(cells, a.skip, a.seed, a.resamples)
    flags, checks, unchecked = doubts(cells, lost, tells.Judge(cells, a.skip, a.seed, a.resamples, a.drive_gb_s))
    blocks = [("p", f"Cells: {len(cells)}. The first {a.skip} tokens of each run are left out. Empty is what was not "
                    "measured. Intervals: bootstrap of runs and of blocks of tokens, "
                    f"{a.resamples} resamples, seed {a.seed}.")]
    if marks(cells):
        blocks += [("p", "Not the model's own text:"), ("list", marks(cells))]
    blocks += [("h", "Doubts"), ("list", flags) if flags else ("p", "Nothing was flagged."),
               ("table", ["cell"] + list(tells.TITLES.values()), checks)]
    if unchecked:
        blocks += [("p", "Not checked:"), ("list", unchecked)]
    blocks += [("h", "Token times"), ("table", *t.times())]
    if len(cells) > 1:
        blocks.append(("table", *t.against_first()))
    blocks += [("h", "Where a token's time goes"), ("table", *t.parts()), ("h", "Pressure"), ("table", *t.pressure())]
    library = None if a.no_matplotlib else plots.matplotlib_pyplot()
    blocks.append(("h", "Plots"))
    blocks += [("plot", name, title, plots.draw(title, x, y, series, library))
               for name, title, x, y, series in plots.plots_of(cells)]
    blocks.append(("h", "Configurations"))
    for c in cells:
        for r in c.runs:
            blocks.append(("fold", f"{c.name}: {r.path}", [(k, "" if v is None else str(v)) for k, v in r.pre.items()]))
            blocks.append(("p", f"{c.name}: {r.path}, {r.pre.get('model.name') or '?'}, "
                                f"version {r.pre.get('version')}, {r.pre.get('plan.mode')}, "
                                f"{r.pre.get('plan.threads')} threads"))
    return flags, blocks


def write(folder, blocks):
    os.makedirs(folder, exist_ok=True)
    for block in blocks:
        if block[0] == "plot":
            page.write_file(os.path.join(folder, block[1]), block[3])
    page.write_file(os.path.join(folder, "summary.md"), page.to_markdown("Measured runs", blocks))
    page.write_file(os.path.join(folder, "report.html"), page.to_html("Measured runs", blocks))


def main():
    a = parse_arguments()
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        cells, lost = read_cells(a.runs, a.skip)
        flags, blocks = report(a, cells, lost)
        write(a.out, blocks)
    except Bad as e:
        sys.exit(one_line(f"bench-analyze: {e}"))
    except OSError as e:
        sys.exit(one_line(f"bench-analyze: {e.filename}: {e.strerror}"))
    for line in flags:
        print("flag: " + one_line(line))
    print(f"cells: {len(cells)}; {os.path.join(a.out, 'summary.md')}, {os.path.join(a.out, 'report.html')}")


if __name__ == "__main__":
    main()

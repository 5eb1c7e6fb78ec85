#!/usr/bin/env python3
"""What a recorded routing (sluice run --route-trace FILE) says about caches: which experts are hot, how soon they come
back, how much memory holds what share of the uses. Prints text; --json and --html write the same for programs, and as
one page with heat maps that needs no other file. docs/analysis.md explains every figure."""
import argparse
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from analysis import page, route_page, route_text, routes  # noqa: E402  pylint: disable=wrong-import-position
from analysis.records import Bad, one_line  # noqa: E402  pylint: disable=wrong-import-position


def count(text):
    v = int(text)
    if not 0 <= v <= 10**6:
        raise ValueError(text)
    return v


def parse_arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("trace")
    a.add_argument("--top", type=count, default=8, metavar="N", help="hot experts to name per layer (default 8)")
    a.add_argument("--json", metavar="FILE", help="write the figures as JSON; - is standard output, instead of the text")
    a.add_argument("--html", metavar="FILE", help="write the viewer page")
    a.add_argument("--tokens", type=count, default=512, metavar="N",
                   help="generated tokens whose choices the page can show one by one (default 512)")
    return a.parse_args()


def main():
    a = parse_arguments()
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        trace = routes.read_trace(a.trace)
        figures = routes.analyze(trace, a.top)
        maps = route_page.maps_of(trace)
        if a.html:
            page.write_file(a.html, route_page.to_html(trace, figures, maps, a.tokens))
        if a.json:
            text = json.dumps({**figures, "maps": maps}, allow_nan=False, separators=(",", ":")) + "\n"
            if a.json == "-":
                sys.stdout.write(text)
            else:
                page.write_file(a.json, text)
        if a.json != "-":
            sys.stdout.write(route_text.to_text(figures, maps["decode_uses"]))
    except Bad as e:
        sys.exit(one_line(f"route-analyze: {e}"))
    except OSError as e:
        sys.exit(one_line(f"route-analyze: {e.filename}: {e.strerror}"))


if __name__ == "__main__":
    main()

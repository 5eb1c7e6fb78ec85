"""Files in the formats of sluice run, with whatever a test wants in them."""
import json
import os
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
failures = []


def check(ok, what):
    if not ok:
        failures.append(what)


def finish():
    for f in failures:
        print(f)
    sys.exit(1 if failures else 0)


def script(name, *args):
    return subprocess.run([sys.executable, os.path.join(ROOT, "scripts", name), *args], capture_output=True, text=True,
                          timeout=120, check=False, stdin=subprocess.DEVNULL)


def write(path, text):
    with open(path, "w", encoding="utf-8", newline="") as f:
        f.write(text)


PRE = {"version": "0.1.0", "model.arch": "test", "model.name": "tiny", "model.file_mib": 40, "plan.mode": "streamed",
       "plan.marks": "", "plan.o_direct": 1, "plan.threads": 2, "plan.cpu": "scalar", "plan.dense_weights": "anon",
       "option.drive-gb-s": "0"}


def run_csv(rows, pre=None, columns=None):
    """Text of a --csv file; rows: dicts. Columns that a row lacks are empty."""
    columns = columns or sorted({k for r in rows for k in r}) or ["loop_s"]
    out = ["# sluice csv v1"] + [f"# {k}={json.dumps(v)}" for k, v in {**PRE, **(pre or {})}.items()]
    out.append(",".join(columns))
    out += [",".join(str(r.get(c, "")) for c in columns) for r in rows]
    return "\n".join(out + ["# summary", f"# tokens={len(rows)}", "# hit_pct="]) + "\n"


def token(loop=0.1, **more):
    row = {"loop_s": loop, "compute_s": 0.06, "stall_s": 0.03, "mgmt_s": 0.005, "other_s": 0.004, "overhead_s": 0.001,
           "io_s": 0.05, "read_bytes": 50 << 20, "hits": 30, "misses": 10, "hit_pct": 75, "experts_routed": 40,
           "experts_dropped": 0, "majflt": 0, "rss_anon_mib": 100, "mem_available_mib": 5000}
    return {**row, **more}


def find_browser():
    """Chromium's program, or None."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                return path
    return None


def dump_dom(browser, path, profile):
    """The page's elements after its scripts have run."""
    p = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                        "--virtual-time-budget=3000", "--window-size=1200,900", f"--user-data-dir={profile}", "--dump-dom",
                        "file://" + os.path.abspath(path)], capture_output=True, timeout=200, check=False,
                       stdin=subprocess.DEVNULL)
    return p.stdout.decode("utf-8", "replace")

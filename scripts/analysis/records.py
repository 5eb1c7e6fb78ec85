"""Recorded runs: `--csv` files of sluice run and the metrics beside them (docs/telemetry.md, docs/analysis.md).

Columns are found by name, unknown ones passed over. Whatever is wrong with a file becomes Bad: one line with file and
line number."""
import json
import math
import os

MAX_BYTES = 256 << 20  # of one file
MAX_COLUMNS = 256


class Bad(Exception):
    """One line for the user."""


class Run:
    """One CSV: pre and summary are dicts of text and numbers, columns a dict of lists (None: not measured)."""

    def __init__(self, path):
        self.path, self.pre, self.summary, self.columns, self.n = path, {}, {}, {}, 0
        self.metrics = None  # columns of the metrics file

    def column(self, name, skip=0):
        return self.columns.get(name, [None] * self.n)[skip:]

    def known(self, name, skip=0):
        return [v for v in self.column(name, skip) if v is not None]


class Cell:
    """Runs with one configuration."""

    def __init__(self, name):
        self.name, self.runs = name, []

    def pre(self, key, default=None):
        return self.runs[0].pre.get(key, default)

    def known(self, name, skip):
        return [v for r in self.runs for v in r.known(name, skip)]


def shown(text, most=40):
    """text for a message: one line, printable, not long."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    return repr(text if len(text) <= most else text[:most] + "...")


def read_lines(path):
    try:
        with open(path, "rb") as f:
            data = f.read(MAX_BYTES + 1)
    except OSError as e:
        raise Bad(f"{path}: {e.strerror}") from e
    if len(data) > MAX_BYTES:
        raise Bad(f"{path}: larger than {MAX_BYTES >> 20} MiB")
    # Only "\n" ends a line: a prompt in the preamble may hold other separators of Unicode.
    lines = data.decode("utf-8", "replace").split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return [s.rstrip("\r") for s in lines]


def read_number(text, where, column):
    if text == "":
        return None
    try:
        v = float(text)
    except ValueError:
        v = math.nan
    if not math.isfinite(v) or "_" in text:
        raise Bad(f"{where}: {column} is {shown(text)}, not a number")
    return v


def read_header(line, where, needed):
    names = line.split(",")
    if len(names) > MAX_COLUMNS:
        raise Bad(f"{where}: more than {MAX_COLUMNS} columns")
    if len(set(names)) != len(names):
        raise Bad(f"{where}: two columns have the same name")
    for name in needed:
        if name not in names:
            raise Bad(f"{where}: no column {name}")
    return names


def read_table(lines, first, path, needed):
    """lines[0] is line number `first` of the file and has the columns' names; the result maps them to lists."""
    names = read_header(lines[0], f"{path}:{first}", needed)
    columns = {name: [] for name in names}
    for n, line in enumerate(lines[1:], first + 1):
        fields = line.split(",")
        if len(fields) != len(names):
            raise Bad(f"{path}:{n}: {len(fields)} fields, the header has {len(names)}")
        for name, text in zip(names, fields):
            columns[name].append(read_number(text, f"{path}:{n}", name))
    return columns


def read_pairs(lines, first, path):
    """Lines "# key=value": values are JSON; what is empty was not measured."""
    out = {}
    for n, line in enumerate(lines, first):
        key, eq, text = line[2:].partition("=")
        if not line.startswith("# ") or not eq:
            raise Bad(f"{path}:{n}: expected '# name=value', found {shown(line)}")
        try:
            value = json.loads(text) if text else None
        except (ValueError, RecursionError) as e:
            raise Bad(f"{path}:{n}: the value of {shown(key)} is neither a number nor a string") from e
        if isinstance(value, float) and not math.isfinite(value):
            raise Bad(f"{path}:{n}: {shown(key)} is not a number")
        if not isinstance(value, (int, float, str, type(None))) or isinstance(value, bool):
            raise Bad(f"{path}:{n}: the value of {shown(key)} is neither a number nor a string")
        out[key] = value
    return out


def read_run(path):
    lines = read_lines(path)
    if not lines or lines[0] != "# sluice csv v1":
        raise Bad(f"{path}:1: the first line is not '# sluice csv v1'; not written by sluice run --csv?")
    head = next((i for i, s in enumerate(lines) if not s.startswith("#")), None)
    if head is None:
        raise Bad(f"{path}: no row of column names")
    tail = next((i for i in range(head, len(lines)) if lines[i].startswith("#")), None)
    if tail is None or lines[tail] != "# summary":
        raise Bad(f"{path}:{(len(lines) if tail is None else tail) + (tail is not None)}: no '# summary' behind the "
                  "rows; cut off?")
    run = Run(path)
    run.pre = read_pairs(lines[1:head], 2, path)
    run.columns = read_table(lines[head:tail], head + 1, path, ["loop_s"])
    run.n = len(run.columns["loop_s"])
    run.summary = read_pairs(lines[tail + 1:], tail + 2, path)
    for i, v in enumerate(run.columns["loop_s"]):
        if v is None or v <= 0:
            raise Bad(f"{path}:{head + 2 + i}: loop_s is not above 0")
    tokens = run.summary.get("tokens")
    if tokens is not None and tokens != run.n:
        raise Bad(f"{path}: {run.n} rows, but the summary counts {shown(str(tokens))} tokens")
    return run


def read_metrics(path):
    """Columns of a metrics file of bench-run.sh: samples of the system, a row each."""
    lines = read_lines(path)
    head = next((i for i, s in enumerate(lines) if not s.startswith("#")), None)
    if head is None:
        raise Bad(f"{path}: no row of column names")
    end = next((i for i in range(head, len(lines)) if lines[i].startswith("#")), len(lines))
    columns = read_table(lines[head:end], head + 1, path, ["seconds"])
    before = -math.inf
    for n, t in enumerate(columns["seconds"], head + 2):
        if t is None or t < before:
            raise Bad(f"{path}:{n}: seconds are missing or run backwards")
        before = t
    return columns


def beside(path):
    """The metrics file that belongs to a CSV: its name with .metrics or .metrics.csv for .csv; None if there is none."""
    stem = path[:-4] if path.endswith(".csv") else path
    return next((p for p in (stem + ".metrics", stem + ".metrics.csv") if os.path.isfile(p)), None)


def cell_name(path):
    name = os.path.basename(path)
    return name[:-4] if name.endswith(".csv") else name


def spread(argument):
    """(cell's name, path) of each run that an argument FILE, NAME=FILE or DIR names."""
    name, eq, path = argument.partition("=")
    if eq and not os.path.exists(argument):
        if not name:
            raise Bad(f"{argument}: a cell needs a name before the =")
        return [(name, path)]
    if not os.path.isdir(argument):
        return [(cell_name(argument), argument)]
    found = [os.path.join(argument, f) for f in sorted(os.listdir(argument))
             if f.endswith(".csv") and not f.endswith(".metrics.csv")]
    found = [p for p in found if read_lines(p)[:1] == ["# sluice csv v1"]]
    if not found:
        raise Bad(f"{argument}: no file in it was written by sluice run --csv")
    return [(cell_name(p), p) for p in found]


def read_cells(arguments, skip):
    """Cells in the order in which they are named; runs of the same name make one cell."""
    cells = {}
    for name, path in (pair for a in arguments for pair in spread(a)):
        run = read_run(path)
        if run.n <= skip:
            raise Bad(f"{path}: {run.n} tokens, nothing is left behind the first {skip} (--skip)")
        metrics = beside(path)
        run.metrics = read_metrics(metrics) if metrics else None
        cells.setdefault(name, Cell(name)).runs.append(run)
    return list(cells.values())

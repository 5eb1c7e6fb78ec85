"""Recorded runs: `--csv` files of sluice run and the metrics beside them (docs/telemetry.md, docs/benchmark-method.md).

Columns are found by name, unknown ones passed over. Whatever is wrong with a file becomes Bad: one line with file and
line number."""
import csv
import json
import math
import os

MAX_BYTES = 256 << 20  # of one file
MAX_COLUMNS = 256
MOST = 1e18  # of any number, so that sums and scales of plots stay finite
MAX_DIGITS = 64


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
        self.notes = []  # what was recorded about its runs beside their files

    def pre(self, key, default=None):
        return self.runs[0].pre.get(key, default)

    def known(self, name, skip):
        return [v for r in self.runs for v in r.known(name, skip)]


def one_line(text):
    """text with a ? for what is no printable character: names of files may hold anything."""
    return "".join(c if c.isprintable() else "?" for c in text)


def shown(text, most=40):
    """text for a message: one line, printable, not long."""
    text = one_line(text)
    return repr(text if len(text) <= most else text[:most] + "...")


def read_lines(path):
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise Bad(f"{path}: not a regular file")
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
    if not abs(v) <= MOST or "_" in text:
        raise Bad(f"{where}: {column} is {shown(text)}, not a number of at most {MOST:g}")
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
            if len(text) > MAX_DIGITS and not text.startswith('"'):
                raise ValueError(text)
            value = json.loads(text) if text else None
        except (ValueError, RecursionError) as e:
            raise Bad(f"{path}:{n}: the value of {shown(key)} is neither a number nor a string") from e
        if isinstance(value, (int, float)) and not abs(value) <= MOST:
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


class Source:
    """Where a run comes from; path is None where there is none, and note says why."""

    def __init__(self, name, path, metrics=None, note=None):
        self.name, self.path, self.note = name, path, note
        self.metrics = metrics or (beside(path) if path else None)


def inside(folder, name, where):
    """The path of a file that an index names; it lies in the index's folder."""
    if not name or os.path.basename(name) != name or name in (".", ".."):
        raise Bad(f"{where}: {shown(name)} is not the name of a file in this folder")
    return os.path.join(folder, name)


def index_rows(path):
    lines = read_lines(path)
    try:
        rows = list(csv.reader(lines, strict=True))
    except csv.Error as e:
        raise Bad(f"{path}: {e}") from e
    names = rows[0] if rows else []
    for need in ("model", "config", "exit", "csv"):
        if need not in names:
            raise Bad(f"{path}:1: no column {need}")
    for n, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise Bad(f"{path}:{n}: {len(row)} fields, the header has {len(names)}")
        yield n, dict(zip(names, row))


def read_index(folder):
    """Sources of a folder of bench-matrix.sh, by its index: passes of one configuration are runs of one cell. A cell
    that failed has no file to read, and its name tells so."""
    path = os.path.join(folder, "index.csv")
    rows = list(index_rows(path))
    many = len({row["model"] for _, row in rows}) > 1
    for n, row in rows:
        name = (os.path.basename(row["model"]) + ", " if many else "") + row["config"]
        which = f"pass {row.get('pass') or '?'}"
        if row["exit"] != "0":
            yield Source(name, None, note=f"{which} failed with exit status {row['exit']}")
            continue
        note = f"{which} began although the machine was not as before: {row['gave_up']}" if row.get("gave_up") else None
        metrics = inside(folder, row["metrics"], f"{path}:{n}") if row.get("metrics") else None
        yield Source(name, inside(folder, row["csv"], f"{path}:{n}"), metrics, note)


def found_in(folder):
    """The CSV files of a folder that sluice run has written."""
    found = [os.path.join(folder, f) for f in sorted(os.listdir(folder))
             if f.endswith(".csv") and not f.endswith(".metrics.csv")]
    found = [p for p in found if read_lines(p)[:1] == ["# sluice csv v1"]]
    if not found:
        raise Bad(f"{folder}: no file in it was written by sluice run --csv")
    return found


def spread(argument):
    """Sources of each run that an argument FILE, DIR, NAME=FILE or NAME=DIR (runs of one cell) names."""
    name, eq, path = argument.partition("=")
    if eq and not os.path.exists(argument):
        if not name:
            raise Bad(f"{argument}: a cell needs a name before the =")
        return [Source(name, p) for p in (found_in(path) if os.path.isdir(path) else [path])]
    if not os.path.isdir(argument):
        return [Source(cell_name(argument), argument)]
    if os.path.exists(os.path.join(argument, "index.csv")):
        return list(read_index(argument))
    return [Source(cell_name(p), p) for p in found_in(argument)]


def read_cells(arguments, skip):
    """Cells in the order in which they are named (runs of the same name make one cell), and lines about runs that
    there are no files of."""
    cells, lost = {}, []
    for source in (s for a in arguments for s in spread(a)):
        if source.path is None:
            lost.append(f"{source.name}: {source.note}")
            continue
        run = read_run(source.path)
        if run.n <= skip:
            raise Bad(f"{source.path}: {run.n} tokens, nothing is left behind the first {skip} (--skip)")
        run.metrics = read_metrics(source.metrics) if source.metrics else None
        cell = cells.setdefault(source.name, Cell(source.name))
        cell.runs.append(run)
        cell.notes += [source.note] if source.note else []
    if not cells:
        raise Bad("every run failed: " + "; ".join(lost[:3]))
    return list(cells.values()), lost

"""Line plots as SVG: by matplotlib where it is there, else by what stands here."""
import html
import io
import math

from analysis.records import one_line

PALETTE = ("#0b6bb5", "#d1570c", "#21843a", "#8a3fa0", "#b3262e", "#6d5a00", "#00807e", "#555555")
MOST_POINTS = 1200  # of one line; more are averaged, nobody could tell them apart


class Series:
    """One line. Points without a y (None) are gaps."""

    def __init__(self, label, xs, ys, dashed=False, color=0):
        self.label = one_line(label)  # XML has no control characters
        self.dashed, self.color = dashed, PALETTE[color % len(PALETTE)]
        self.points = thin([(x, y) for x, y in zip(xs, ys) if x is not None and y is not None])


def thin(points):
    per = -(-len(points) // MOST_POINTS)
    if per <= 1:
        return points
    parts = [points[i:i + per] for i in range(0, len(points), per)]
    return [tuple(sum(p[axis] for p in part) / len(part) for axis in (0, 1)) for part in parts]


def ticks(low, high, about=6):
    """Round numbers that cover low..high."""
    step = 10.0 ** math.floor(math.log10((high - low) / about))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= about)
    first = math.floor(low / step + 1e-9)
    return [i * step for i in range(first, math.ceil(high / step - 1e-9) + 1)]


def span(values):
    low, high = min(values), max(values)
    least = max(1e-6 * max(abs(low), abs(high)), 1e-6)  # less could not be told apart on an axis
    return (low, high) if high - low >= least else (low - least, high + least)


def matplotlib_pyplot():
    try:
        import matplotlib  # pylint: disable=import-outside-toplevel
        matplotlib.use("svg")
        from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
        return matplotlib, pyplot
    except ImportError:
        return None


def draw(title, x_label, y_label, series, library=None):
    """The text of an SVG file. library: what matplotlib_pyplot returned, or None for our own."""
    series = [s for s in series if s.points]
    if not series:
        return empty(title)
    if library is None:
        return draw_own(title, x_label, y_label, series)
    return draw_library(library, title, x_label, y_label, series)


def draw_library(library, title, x_label, y_label, series):
    matplotlib, pyplot = library

    def plain(text):  # "$" would begin a formula, a leading "_" hides a line from the legend
        return " " + text.replace("\\", "\\\\").replace("$", r"\$")
    with matplotlib.rc_context({"svg.hashsalt": title, "svg.fonttype": "none"}):
        figure, axes = pyplot.subplots(figsize=(9.6, 4.2 + 0.12 * len(series)))
        for s in series:
            axes.plot([p[0] for p in s.points], [p[1] for p in s.points], label=plain(s.label), color=s.color,
                      linewidth=1, linestyle="--" if s.dashed else "-",
                      marker="." if len(s.points) == 1 else None)
        axes.set_title(title)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.set_ylim(bottom=min(0, min(p[1] for s in series for p in s.points)))
        axes.grid(alpha=0.3)
        figure.legend(*axes.get_legend_handles_labels(), loc="lower center",
                      ncol=2, fontsize="small")
        figure.subplots_adjust(bottom=min(0.16 + 0.035 * (len(series) + 1) / 2, 0.6))
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    return out.getvalue()


WIDTH, TOP, LEFT, RIGHT, HEIGHT = 960, 40, 78, 20, 320  # HEIGHT: of the drawing area


def empty(title):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 60" font-family="sans-serif">'
            f'<text x="20" y="35" font-size="15">{html.escape(title)}: not measured</text></svg>\n')


def draw_own(title, x_label, y_label, series):
    xs = span([p[0] for s in series for p in s.points])
    y_ticks = ticks(*span([0] + [p[1] for s in series for p in s.points]))
    ys = (y_ticks[0], y_ticks[-1])
    wide, bottom = WIDTH - LEFT - RIGHT, TOP + HEIGHT

    def px(x):
        return LEFT + wide * (x - xs[0]) / (xs[1] - xs[0])

    def py(y):
        return bottom - HEIGHT * (y - ys[0]) / (ys[1] - ys[0])
    total = bottom + 60 + 20 * ((len(series) + 1) // 2)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" font-family="sans-serif" '
           f'font-size="12">', f'<rect width="{WIDTH}" height="{total}" fill="#fff"/>',
           f'<text x="{WIDTH / 2}" y="24" text-anchor="middle" font-size="15">{html.escape(title)}</text>']
    for y in y_ticks:
        out.append(f'<path d="M{LEFT} {py(y):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/><text x="{LEFT - 6}" '
                   f'y="{py(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in ticks(*xs, about=10):
        if xs[0] <= x <= xs[1]:
            out.append(f'<path d="M{px(x):.1f} {bottom}v5" stroke="#444"/><text x="{px(x):.1f}" y="{bottom + 18}" '
                       f'text-anchor="middle">{x:g}</text>')
    out.append(f'<path d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}" fill="none" stroke="#444"/>')
    out.append(f'<text x="{LEFT + wide / 2}" y="{bottom + 38}" text-anchor="middle">{html.escape(x_label)}</text>')
    out.append(f'<text transform="translate(16 {TOP + HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
               f'{html.escape(y_label)}</text>')
    for i, s in enumerate(series):
        dash = ' stroke-dasharray="6 4"' if s.dashed else ""
        points = [f"{px(x):.1f} {py(y):.1f}" for x, y in s.points]
        points = points if len(points) > 1 else points + ["h1"]
        out.append(f'<path d="M{"L".join(points).replace("Lh", "h")}" fill="none" stroke="{s.color}" '
                   f'stroke-width="1.3" stroke-linejoin="round"{dash}/>')
        x, y = LEFT + (i % 2) * wide / 2, bottom + 60 + 20 * (i // 2)
        out.append(f'<path d="M{x} {y - 4}h26" stroke="{s.color}" stroke-width="2"{dash}/>'
                   f'<text x="{x + 32}" y="{y}">{html.escape(s.label)}</text>')
    return "\n".join(out) + "\n</svg>\n"


def plots_of(cells):
    """(file name, title, x, y, series) of each plot: every token of every run, those of --skip too."""
    times, hits, memory = [], [], []
    for number, cell in enumerate(cells):
        for k, run in enumerate(cell.runs):
            label = cell.name if len(cell.runs) == 1 else f"{cell.name} ({k + 1})"
            steps = list(range(run.n))
            times.append(Series(label, steps, run.column("loop_s"), color=number))
            hits.append(Series(label, steps, run.column("hit_pct"), color=number))
            memory += memory_of(run, label, number)
    return [("token_times.svg", "Token times", "token", "s", times),
            ("hit_rate.svg", "Hit rate of the expert cache", "token", "%", hits),
            ("memory.svg", "Memory over time", "s", "MiB", memory)]


def memory_of(run, label, color):
    """The process and what the system has left: from the metrics beside the run, else from its rows."""
    if run.metrics is not None:
        m = run.metrics
        at, held, left = m["seconds"], m.get("rss_mib", []), m.get("mem_available_mib", [])
        name = "RSS"
    else:
        at, now = [], 0.0
        for v in run.column("loop_s"):
            now += v
            at.append(now)
        parts = zip(run.column("rss_anon_mib"), run.column("rss_shmem_mib"))
        held = [None if a is None else a + (s or 0) for a, s in parts]
        left, name = run.column("mem_available_mib"), "RssAnon+RssShmem"
    return [Series(f"{label}: {name}", at, held, color=color),
            Series(f"{label}: MemAvailable", at, left, dashed=True, color=color)]

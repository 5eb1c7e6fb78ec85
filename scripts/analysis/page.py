"""A report as a list of blocks, written as Markdown and as one HTML page without any other file.

Blocks: ("h", text), ("p", text), ("list", texts), ("table", names, rows), ("plot", file name, title, SVG),
("fold", title, pairs). All text is text: nothing in it is markup."""
import base64
import html
import os
import re

STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:75rem;margin:1.5rem auto;padding:0 1rem;color:#222;
background:#fff}table{border-collapse:collapse;margin:.6rem 0;display:block;overflow-x:auto}
th,td{border:1px solid #ccc;padding:.2rem .55rem;text-align:right;white-space:nowrap}
th{background:#f1f3f5;white-space:normal;vertical-align:bottom}
td:first-child,th:first-child,td.text{text-align:left}td.flag{background:#ffe3df;font-weight:bold}
img{width:100%;height:auto;border:1px solid #ddd}"""


def plain_md(text):
    """Text that Markdown shows as it is, in one line."""
    text = "".join(c if c.isprintable() else " " for c in text)
    return re.sub(r"([\\`*_\[\]<>|#&~$])", r"\\\1", text)


def to_markdown(title, blocks):
    out = ["# " + plain_md(title), ""]
    for block in blocks:
        kind = block[0]
        if kind == "h":
            out += ["## " + plain_md(block[1]), ""]
        elif kind == "p":
            out += [plain_md(block[1]), ""]
        elif kind == "list":
            out += ["- " + plain_md(t) for t in block[1]] + [""]
        elif kind == "table":
            out.append("| " + " | ".join(plain_md(n) for n in block[1]) + " |")
            out.append("| --- |" + " ---: |" * (len(block[1]) - 1))
            out += ["| " + " | ".join(plain_md(c) for c in row) + " |" for row in block[2]] + [""]
        elif kind == "plot":
            out += [f"![{plain_md(block[2])}]({block[1]})", ""]
    return "\n".join(out)


def one_cell(text, first):
    kind = ' class="flag"' if text == "FLAG" else ' class="text"' if first else ""
    return f"<td{kind}>{html.escape(text)}</td>"


def to_html(title, blocks):
    out = ['<!doctype html><html lang="en"><head><meta charset="utf-8">',
           '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
           'style-src \'unsafe-inline\'">',
           '<meta name="viewport" content="width=device-width,initial-scale=1">',
           f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>", f"<h1>{html.escape(title)}</h1>"]
    for block in blocks:
        kind = block[0]
        if kind in ("h", "p"):
            tag = "h2" if kind == "h" else "p"
            out.append(f"<{tag}>{html.escape(block[1])}</{tag}>")
        elif kind == "list":
            out.append("<ul>" + "".join(f"<li>{html.escape(t)}</li>" for t in block[1]) + "</ul>")
        elif kind == "table":
            out.append("<table><thead><tr>" + "".join(f"<th>{html.escape(n)}</th>" for n in block[1]) + "</tr></thead>")
            for row in block[2]:
                out.append("<tr>" + "".join(one_cell(c, i == 0) for i, c in enumerate(row)) + "</tr>")
            out.append("</table>")
        elif kind == "plot":
            data = base64.b64encode(block[3].encode()).decode()
            out.append(f'<p><img alt="{html.escape(block[2])}" src="data:image/svg+xml;base64,{data}"></p>')
        elif kind == "fold":
            rows = "".join(f"<tr><td>{html.escape(k)}</td>{one_cell(v, True)}</tr>" for k, v in block[2])
            out.append(f"<details><summary>{html.escape(block[1])}</summary><table>{rows}</table></details>")
    return "\n".join(out) + "\n</body></html>\n"


def write_file(path, text):
    """Whole or not at all."""
    part = f"{path}.part"
    try:
        with open(part, "w", encoding="utf-8", errors="replace") as f:
            f.write(text)
        os.replace(part, path)
    except OSError:
        if os.path.exists(part):
            os.remove(part)
        raise

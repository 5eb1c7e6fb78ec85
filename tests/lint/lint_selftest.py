#!/usr/bin/env python3
"""Each rule is shown to fail on a small tree that breaks it, and to pass on one that does not."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lint  # noqa: E402

GOOD = {
    "src/base/a.h": "#ifndef A\n#define A\nint a_b(void);\n#endif\n",
    "src/base/a.c": '#include "base/a.h"\n/* malloc(1) in a comment */\nint a_b(void)\n{\n'
                    '    return x->free(1) + y.exp(2);\n}\n',
    "src/io/r.c": '#include "base/a.h"\n#include "io/r.h"\n#include "impl.h"\n',
    "cli/m.c": '#include "base/a.h"\n#include "sluice.h"\n#include "cli/o.h"\n',
    "cli/bench.c": '#include "bench/b.h"\n',
    "bench/b.c": '#include "bench/b.h"\n#include "kernels/k.h"\n',
}
BAD = {
    "includes": {"src/base/a.c": '#include "io/r.h"\n', "cli/m.c": '#include "cache/c.h"\n',
                 "cli/n.c": '#include "bench/b.h"\n', "bench/b.c": '#include "model/m.h"\n',
                 "src/text/t.c": '#include "kernels/k.h"\n'},
    "lengths": {"src/base/a.c": "int a_f(void)\n{\n" + "    ;\n" * 70 + "}\n",
                "src/base/b.c": "int a;\n" * 900},
    "calls": {"src/base/a.c": "void a_f(void)\n{\n    free(p);\n}\n",
              "cli/m.c": "int f(void)\n{\n    return atoi(s);\n}\n"},
    "environment": {"src/base/a.c": "char *s = getenv(\"X\");\n"},
    "arithmetic": {"src/model/m.c": "float y = expf(x);\n"},
    "words": {"README.md": "see " + "issue" + " #3\n"},
    "links": {"README.md": "[a](docs/no.md)\n", "docs/tour.md": "- `src/no.c`: x\n"},
    "headers": {"src/base/a.h": "int a_f(size_t n);\n"},
}


def run(rule, files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        return list(getattr(lint, "rule_" + rule)(lint.Tree(root)))


def check_symbols():
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(root + "/src/base")
        for name in ("a_f", "stray"):
            with open(f"{root}/src/base/a.c", "w", encoding="utf-8") as f:
                f.write(f"int {name}(void);\nint {name}(void) {{ return 1; }}\n")
            subprocess.run(["cc", "-c", "-o", root + "/a.o", root + "/src/base/a.c"], check=True)
            subprocess.run(["ar", "rcs", root + "/l.a", root + "/a.o"], check=True)
            found = list(lint.rule_symbols(lint.Tree(root, root + "/l.a")))
            if bool(found) != (name == "stray"):
                return f"symbols: {name}: {found}"
            os.remove(root + "/l.a")
    return None


def main():
    failures = []
    for rule, files in BAD.items():
        found = {path for path, _, _ in run(rule, files)}
        if found != set(files):
            failures.append(f"{rule}: found {sorted(found)}, not {sorted(files)}")
        if rule != "headers" and run(rule, GOOD):
            failures.append(f"{rule}: complains about the good tree: {run(rule, GOOD)}")
    failures.append(check_symbols())
    for f in filter(None, failures):
        print(f)
    return 1 if any(failures) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""--progress and --session: the events, hostile lines, cancelling, and that the texts are those of plain runs."""
import csv
import json
import os
import signal
import subprocess
import sys

from harness import check, check_no_temporaries, run_tests


def plain(command, *args):
    p = subprocess.run(command + ["run", *args], capture_output=True, timeout=240, check=False,
                       stdin=subprocess.DEVNULL)
    check(p.returncode == 0, f"{args}: {p.stderr!r}")
    return p.stdout.decode()


def events_of(lines):
    out = []
    for line in lines:
        try:
            e = json.loads(line.decode("utf-8"))
            out.append(e)
            check(isinstance(e, dict) and isinstance(e.get("event"), str), f"no event: {line!r}")
        except ValueError as bad:
            check(False, f"{bad}: {line!r}")
    return out


def serve(command, lines, *args):
    """All at once; events, status, standard error."""
    p = subprocess.run(command + ["run", "--session", *args], input=b"\n".join(lines), capture_output=True,
                       timeout=240, check=False)
    return events_of(p.stdout.splitlines()), p.returncode, p.stderr


def text_of(events, name):
    return "".join(e["text"] for e in events if e.get("id") == name and e["event"] in ("token", "done"))


def line(**members):
    return json.dumps(members).encode()


def check_progress(command):
    p = subprocess.run(command + ["run", "-p", "The fox", "-n", "6", "--progress", "--moe-stream", "--cache-mb", "3"],
                       capture_output=True, timeout=240, check=False, stdin=subprocess.DEVNULL)
    check(p.returncode == 0, f"progress: {p.stderr!r}")
    events = events_of(s for s in p.stderr.splitlines() if s.startswith(b"{"))
    names = [e["event"] for e in events if e["event"] not in ("load", "note")]
    check(names == ["mode", "prompt"] + 6 * ["token"] + ["done", "summary"], f"progress: {names}")
    text = "".join(e["text"] for e in events if e["event"] in ("token", "done"))
    check(text == p.stdout.decode() and text, f"progress: {text!r} {p.stdout!r}")
    loads = [e for e in events if e["event"] == "load"]
    check(loads and loads[-1]["done_bytes"] == loads[-1]["total_bytes"], "loading does not end")
    summary = events[-1]
    check(summary["tokens"] == 6 and summary["median_s"] > 0, f"summary {summary}")
    check(b"\nmode: " in b"\n" + p.stderr and b"\ngeneration: 6 tokens" in p.stderr, "the lines for people are gone")


def check_resident_nulls(command):
    p = subprocess.run(command + ["run", "-p", "The fox", "-n", "1", "--progress", "--no-moe-stream"],
                       capture_output=True, timeout=240, check=False, stdin=subprocess.DEVNULL)
    events = events_of(s for s in p.stderr.splitlines() if s.startswith(b"{"))
    token = next(e for e in events if e["event"] == "token")
    check(token["stall_s"] is None and token["hit_pct"] is None and token["compute_s"] > 0, f"{token}")
    check(events[-1]["hit_pct"] is None and events[-1]["read_mib"] is None, "what was not measured is no null")


def check_progress_fails(command):
    p = subprocess.run(command + ["run", "-m", "nothere.gguf", "-p", "a", "--progress"], capture_output=True,
                       timeout=240, check=False, stdin=subprocess.DEVNULL)
    events = events_of(s for s in p.stderr.splitlines() if s.startswith(b"{"))
    check(p.returncode == 1 and events[-1]["event"] == "error" and "nothere.gguf" in events[-1]["message"],
          f"{p.stderr!r}")


def check_split_characters(command):
    """A model that draws bytes at random: every delta is valid UTF-8 by itself, or the line would not parse."""
    for seed in range(3):
        p = subprocess.run(command + ["run", "-p", "\u00e4\u00f6\U0001f98a", "-n", "60", "--temp", "40", "--seed",
                                      str(seed), "--ignore-eos", "--progress"], capture_output=True, timeout=240,
                           check=False, stdin=subprocess.DEVNULL)
        events = events_of(s for s in p.stderr.splitlines() if s.startswith(b"{"))
        text = "".join(e["text"] for e in events if e["event"] in ("token", "done"))
        try:
            check(text == p.stdout.decode("utf-8"), f"seed {seed}: texts differ")
        except UnicodeDecodeError:
            check("\ufffd" in text, f"seed {seed}: invalid bytes without a mark")


def check_requests(command):
    """Requests one after the other give the texts of plain runs, whatever came before."""
    fox = plain(command, "-p", "The fox", "-n", "8")
    day = plain(command, "-p", "One day", "-n", "5", "--temp", "0.9", "--seed", "3", "--ignore-eos")
    chat = plain(command, "-p", "Tell me a tale.", "-n", "4", "--chatml")
    ids = plain(command, "--token-ids", "5,6,7", "-n", "4", "--ignore-eos")
    events, rc, err = serve(command, [
        line(op="generate", id="fox", prompt="The fox", n=8),
        line(op="generate", id="day", prompt="One day", n=5, temp=0.9, seed=3, ignore_eos=True),
        b"  ",
        line(op="generate", id="chat", prompt="Tell me a tale.", n=4, chat=True),
        line(op="generate", id="ids", ids=[5, 6, 7], n=4, ignore_eos=True),
        line(op="generate", id="again", prompt="The fox", n=8),
        line(op="generate", id="none", prompt="The fox", n=0)], "--moe-stream", "--cache-mb", "2", "--csv", "s.csv")
    check(rc == 0 and not [e for e in events if e["event"] == "error"], f"requests: {rc} {events[-3:]} {err!r}")
    for name, want in (("fox", fox), ("day", day), ("chat", chat), ("ids", ids), ("again", fox), ("none", "")):
        check(text_of(events, name) == want, f"{name}: {text_of(events, name)!r}, a plain run says {want!r}")
    done = {e["id"]: e for e in events if e["event"] == "done"}
    check(done["day"]["tokens"] == 5 and done["day"]["end"] == "length", f"{done['day']}")
    with open("s.csv", encoding="utf-8") as f:
        rows = list(csv.DictReader(s for s in f if not s.startswith("#")))
    tokens = [e for e in events if e["event"] == "token"]
    check([int(r["token"]) for r in rows] == [e["token"] for e in tokens], "rows and events")
    check(sorted({r["turn"] for r in rows}) == list("01234"), "turns")
    check(events[-1]["event"] == "summary" and events[-1]["tokens"] == len(tokens), "summary")


def check_keep(command):
    """keep goes on where the last answer ended: as one prompt of ids would."""
    first = plain(command, "-p", "The fox", "-n", "4", "--ignore-eos", "--ids-out", "ids")
    events, rc, _ = serve(command, [line(op="generate", id="a", prompt="The fox", n=4, ignore_eos=True),
                                    line(op="generate", id="b", ids=[9, 8], n=3, keep=True, ignore_eos=True)])
    check(rc == 0 and text_of(events, "a") == first, "keep: first")
    with open("ids", "rb") as f:
        raw = f.read()
    ids = [int.from_bytes(raw[i:i + 4], "little") for i in range(0, len(raw), 4)]
    want = plain(command, "--token-ids", ",".join(map(str, ids + [9, 8])), "-n", "3", "--ignore-eos")
    check(text_of(events, "b") == want, f"keep: {text_of(events, 'b')!r} {want!r}")


def check_budget(command):
    """Another cache size between two requests: the same text; an impossible one changes nothing."""
    events, rc, err = serve(command, [
        line(op="generate", id="a", prompt="The fox", n=6), line(op="budget", id="b", cache_mb=2),
        line(op="generate", id="c", prompt="The fox", n=6), line(op="budget", id="d", cache_mb=0),
        line(op="generate", id="e", prompt="The fox", n=6), line(op="budget", id="f", cache_mb=999999999),
        line(op="generate", id="g", prompt="The fox", n=6)], "--moe-stream", "--cache-mb", "4", "--ram", "256M",
        "--csv", "b.csv")
    want = plain(command, "-p", "The fox", "-n", "6")
    check(rc == 0 and all(text_of(events, i) == want for i in "aceg"), f"budget: {events[-3:]} {err[-300:]!r}")
    sizes = {e["id"]: e["cache_bytes"] for e in events if e["event"] == "budget"}
    check(0 < sizes.get("b", 0) <= 2 << 20 and sizes.get("d") == 0, f"sizes {sizes}")
    changes = [e for e in events if e["event"] == "cache"]
    check([c["to_bytes"] for c in changes][:2] == [sizes.get("b"), 0] and changes[0]["why"] == "asked for", f"{changes}")
    with open("b.csv", encoding="utf-8") as f:
        rows = list(csv.DictReader(s for s in f if not s.startswith("#")))
    mib = {r["turn"]: float(r["cache_budget_mib"]) for r in rows}
    check(mib["0"] > mib["1"] > mib["2"] == 0, f"budgets of the rows {mib}")
    events, rc, _ = serve(command, [line(op="budget", id="r", cache_mb=2)], "--no-moe-stream")
    check(rc == 0 and [e["id"] for e in events if e["event"] == "error"] == ["r"], "a budget without a cache")


def check_hostile(command):
    """Every bad line is answered by one error, and the next request works."""
    bad = [b'{"op":"cancel"}', b'{"op":"cancel","id":"nobody"}',  # while nothing runs yet
           b"junk", b"{", b"[]", b"7", b'"op"', b'{"op":"fly"}', b'{"op":"generate"}', b'{"op":"generate","prompt":7}',
           b'{"op":"generate","prompt":"a","ids":[1]}', b'{"op":"generate","ids":[]}', b'{"op":"generate","ids":[1.5]}',
           b'{"op":"generate","ids":[-1]}', b'{"op":"generate","ids":[99999]}', b'{"op":"generate","prompt":""}',
           b'{"op":"generate","prompt":"a","n":-1}', b'{"op":"generate","prompt":"a","n":"3"}',
           b'{"op":"generate","prompt":"a","temp":1000}', b'{"op":"generate","prompt":"a","cache_mb":3}',
           b'{"op":"close","op":"close"}', b'{"op":"budget"}',
           b'{"op":"generate","prompt":"\xff"}', b'{"op":"generate","prompt":"a\\u0000"}', b"[" * 5000,
           b'{"op":"generate","id":"' + 65 * b"x" + b'","prompt":"a"}', b'{"op":"generate","ids":[1],"chat":true}',
           b'{"op":"generate","prompt":"' + 2 * 1024 * 1024 * b"a" + b'"}',
           b'{"op":"generate","prompt":"' + 100000 * b"abc " + b'"}', b"\0\0\0"]
    for extra in ([], ["--moe-stream", "--cache-mb", "0"]):
        events, rc, err = serve(command, bad + [line(op="generate", id="ok", prompt="The fox", n=3)], *extra)
        errors = [e for e in events if e["event"] == "error"]
        check(rc == 0 and len(errors) == len(bad), f"{len(errors)} errors for {len(bad)} lines, {rc} {err[-300:]!r}")
        check(all(e["code"].startswith("SL_E_") and e["message"] for e in errors), "errors without words")
        check(text_of(events, "ok") == plain(command, "-p", "The fox", "-n", "3"), "after bad lines")


def check_many(command):
    """More requests than may wait: the rest is refused, not stored."""
    events, rc, _ = serve(command, [line(op="generate", id="long", prompt="a", n=300, ignore_eos=True)] +
                          [line(op="generate", id=str(i), prompt="The fox", n=1) for i in range(400)])
    done = [e["id"] for e in events if e["event"] == "done"]
    refused = [e["id"] for e in events if e["event"] == "error"]
    check(rc == 0 and len(done) + len(refused) == 401 and done[0] == "long", f"{len(done)} done, {len(refused)} refused")
    check(done[1:] == sorted(done[1:], key=int), "out of order")


def talk(command, *args):
    return subprocess.Popen(command + ["run", "--session", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def wait_for(p, name, request):
    while True:
        s = p.stdout.readline()
        if not s:
            check(False, f"the output ended before {name} of {request}")
            return {}
        e = events_of([s])[0]
        if e["event"] == name and e.get("id") == request:
            return e


def check_cancel(command):
    """A cancelled answer leaves the session usable, in decoding, in the prompt, and while it waits."""
    fox = plain(command, "-p", "The fox", "-n", "6")
    p = talk(command, "--moe-stream", "--cache-mb", "2", "--ubatch", "1", "-c", "4096")
    p.stdin.write(line(op="generate", id="a", prompt="Once", n=100000, ignore_eos=True) + b"\n")
    p.stdin.write(line(op="generate", id="waits", prompt="Once", n=5) + b"\n")
    p.stdin.flush()
    wait_for(p, "token", "a")
    p.stdin.write(line(op="cancel", id="waits") + b"\n" + line(op="cancel", id="a") + b"\n")
    p.stdin.flush()
    check(wait_for(p, "done", "a").get("end") == "cancelled", "a was not cancelled")
    p.stdin.write(line(op="generate", id="long", ids=[1] * 4000, n=5) + b"\n" + line(op="cancel", id="long") + b"\n" +
                  line(op="generate", id="b", prompt="The fox", n=6) + b"\n" + line(op="close") + b"\n" +
                  line(op="generate", id="never", prompt="The fox", n=6) + b"\n")
    out, err = p.communicate(timeout=240)
    events = events_of(out.splitlines())
    done = {e["id"]: e for e in events if e["event"] == "done"}
    check(p.returncode == 0 and text_of(events, "b") == fox, f"after cancelling: {text_of(events, 'b')!r} {err[-300:]!r}")
    check(done.get("long", {}).get("end") == "cancelled" and done["long"]["tokens"] == 0, f"prompt: {done}")
    check("never" not in done, "requests behind close were served")


def check_signals(command):
    """A signal while it waits and while it answers: the report, the rows, status 143."""
    for busy in (False, True):
        p = talk(command, "--csv", "k.csv", "-c", "4096")
        if busy:
            p.stdin.write(line(op="generate", id="a", prompt="Once", n=100000, ignore_eos=True) + b"\n")
            p.stdin.flush()
            wait_for(p, "token", "a")
        else:
            while b'"mode"' not in p.stdout.readline():
                pass
        p.send_signal(signal.SIGTERM)
        out, err = p.communicate(timeout=240)
        check(p.returncode == 143 and b"generation: " in err, f"busy={busy}: {p.returncode} {err[-300:]!r}")
        check(os.path.exists("k.csv"), "no rows after a signal")
        os.remove("k.csv")


def check_gone(command):
    """Whoever reads goes away: the program ends with an error, whatever is still to be served."""
    p = talk(command)
    p.stdin.write(line(op="generate", id="a", prompt="Once", n=100000, ignore_eos=True) + b"\n")
    p.stdin.flush()
    wait_for(p, "token", "a")
    p.stdout.close()
    err = p.stderr.read()
    check(p.wait(timeout=240) == 1 and b"cannot write to standard output" in err, f"gone: {err[-300:]!r}")
    p.stdin.close()
    p.stderr.close()


if __name__ == "__main__":
    sys.exit(run_tests((check_progress, check_resident_nulls, check_progress_fails, check_split_characters, check_requests,
                        check_keep, check_budget, check_hostile, check_many, check_cancel, check_signals, check_gone,
                        check_no_temporaries)))

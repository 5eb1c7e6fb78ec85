#!/usr/bin/env python3
"""Ctrl-C, SIGTERM and a reader that goes away."""
import array
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from harness import check, run_tests


def start(command, *args):
    return subprocess.Popen(command + ["run", "-p", "Once upon a time", "--ignore-eos", "-n",
                                       "100000", "-c", "4096", *args],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def check_interrupt(command, sig):
    """The first signal ends the run after a token: report, results, status 128 + signal."""
    p = start(command, "--ids-out", "ids")
    p.stdout.read(1)  # generation has begun
    p.send_signal(sig)
    _, err = p.communicate(timeout=240)
    check(p.returncode == 128 + sig, f"{sig}: status {p.returncode}: {err[-500:]!r}")
    check(b"\ngeneration: " in err and b"\nmemory: " in err, f"{sig}: no report: {err!r}")
    with open("ids", "rb") as f:
        ids = array.array("i", f.read())
    said = int(err.split(b"\ngeneration: ")[1].split()[0])
    prompt = int(err.split(b"\nprefill: ")[1].split()[0])
    check(len(ids) == said + prompt, f"{sig}: {len(ids)} ids for {prompt} + {said} tokens")
    os.remove("ids")


def check_second(command):
    """The second one ends it at once. It is stopped in between so that both arrive together."""
    p = start(command, "--ids-out", "ids")
    p.stdout.read(1)
    p.send_signal(signal.SIGSTOP)
    p.send_signal(signal.SIGINT)
    p.send_signal(signal.SIGTERM)
    p.send_signal(signal.SIGCONT)
    _, err = p.communicate(timeout=240)
    check(p.returncode in (130, 143), f"second signal: status {p.returncode}")
    check(b"\ngeneration: " not in err, "second signal: it went on to the report")
    check(os.listdir(".") == [], f"second signal: left behind {os.listdir('.')}")


def check_prompt(command):
    """In the middle of a prompt: the report says how far it got; no answer, no files."""
    ids = ",".join(["1"] * 4000)
    p = subprocess.Popen(command + ["run", "--token-ids", ids, "-n", "9", "-c", "4096", "--ubatch",
                                    "1", "--moe-stream", "--cache-mb", "0", "--progress", "--ids-out", "ids"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while b'"event":"load"' not in p.stderr.readline():  # told by an evaluation that needs weights
        check(p.poll() is None, "in the prompt: it ended before its weights came")
    p.send_signal(signal.SIGINT)
    out, rest = p.communicate(timeout=240)
    check(p.returncode == 130, f"in the prompt: status {p.returncode}: {rest[-500:]!r}")
    check(out == b"" and b" tokens of 4000, " in rest, f"in the prompt: {out!r} {rest!r}")
    check(os.listdir(".") == [], f"in the prompt: left behind {os.listdir('.')}")


def check_ignored(command):
    """Signals that the caller ignores, as nohup does, stay ignored."""
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    p = subprocess.Popen(command + ["run", "-p", "a", "--ignore-eos", "-n", "40"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, preexec_fn=ignore)
    p.stdout.read(1)
    for sig in (signal.SIGHUP, signal.SIGINT, signal.SIGINT):
        p.send_signal(sig)
    _, err = p.communicate(timeout=240)
    check(p.returncode == 0 and b"\ngeneration: 40 tokens" in err,
          f"ignored signals: status {p.returncode}: {err[-500:]!r}")


def check_closed_pipe(command):
    p = start(command, "--ids-out", "ids")
    p.stdout.read(1)
    p.stdout.close()
    err = p.stderr.read()
    p.wait(timeout=240)
    last = err.rstrip(b"\n").split(b"\n")[-1]
    check(p.returncode == 1, f"closed pipe: status {p.returncode}")
    check(last == b"sluice: cannot write to standard output: Broken pipe", f"closed pipe: {last!r}")
    check(os.listdir(".") == [], f"closed pipe: left behind {os.listdir('.')}")


SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#define WRAP(name)                                                           \\
    int name(const char *path, int flags, ...)                               \\
    {                                                                        \\
        va_list a;                                                           \\
        va_start(a, flags);                                                  \\
        int mode = flags & O_CREAT ? va_arg(a, int) : 0;                     \\
        va_end(a);                                                           \\
        int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);       \\
        int fd = real(path, flags, mode);                                    \\
        if (fd >= 0 && flags & O_CREAT && strstr(path, ".tmp."))             \\
            kill(getpid(), SIGTERM);                                         \\
        return fd;                                                           \\
    }
WRAP(open)
WRAP(open64)
"""


def check_as_a_file_is_made(command):
    """A signal in the moment after a temporary file was made finds it all the same."""
    if len(command) > 1 or not shutil.which("cc"):
        return  # an emulator, or nothing to build the shim with
    with tempfile.TemporaryDirectory() as d:
        shim = os.path.join(d, "shim.so")
        p = subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, "-x", "c", "-", "-x", "none", "-ldl"], input=SHIM,
                           capture_output=True, text=True, check=False)
        check(p.returncode == 0, f"the shim: {p.stderr}")
        p = subprocess.run(command + ["run", "-p", "a", "-n", "1", "--ids-out", "ids"], capture_output=True, check=False,
                           env=dict(os.environ, LD_PRELOAD=shim), timeout=240)
        if b"runtime does not come first" in p.stderr:
            return  # a sanitizer
        check(p.returncode == 128 + signal.SIGTERM, f"as a file is made: status {p.returncode}: {p.stderr[-500:]!r}")
        check(os.listdir(".") == [], f"as a file is made: left behind {os.listdir('.')}")


def check_sigint(command):
    check_interrupt(command, signal.SIGINT)


def check_sigterm(command):
    check_interrupt(command, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(run_tests((check_sigint, check_sigterm, check_second, check_prompt, check_ignored, check_closed_pipe,
                        check_as_a_file_is_made)))

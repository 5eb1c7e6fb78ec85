"""What the tests of the program in Python share: failures that are collected, and a folder to work in."""
import argparse
import os
import tempfile

failures = []


def check(ok, what):
    if not ok:
        failures.append(what)


def run_tests(tests):
    """Each test gets the command line that starts the program, in one empty folder for all. The exit status."""
    a = argparse.ArgumentParser()
    a.add_argument("--program", required=True)
    a.add_argument("--emulator", default="")
    a = a.parse_args()
    command = a.emulator.split() + [os.path.abspath(a.program)]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for test in tests:
            test(command)
        os.chdir("/")
    for f in failures[:20]:
        print(f)
    return 1 if failures else 0


def check_no_temporaries(_):
    check(not [n for n in os.listdir(".") if ".tmp." in n], f"left behind: {os.listdir('.')}")

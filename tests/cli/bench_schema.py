#!/usr/bin/env python3
"""Reads what `sluice bench --kernels --json` prints and checks its form: every key, its type, and
what must hold between numbers. Nothing is said about how fast anything is.

usage: bench_schema.py FILE [TYPE...]    TYPE: weight types that must have results"""
import json
import sys

NUM, INT, STR, BOOL = (int, float), int, str, bool
TIME = {"median_s": NUM, "best_s": NUM, "worst_s": NUM, "reps": INT, "spread": NUM}
LIMIT = {"by": STR, "seconds": NUM, "share": NUM, "best_share": NUM}
MAYBE = "maybe"  # (MAYBE, x): x or null


def maybe(x):
    return (MAYBE, x)


SCHEMA = {
    "version": STR,
    "machine": {
        "cpu": maybe(STR), "system": maybe(STR), "level": STR, "usable_cpus": INT,
        "online_cpus": INT, "l2_bytes": maybe(INT), "last_level_bytes": maybe(INT),
        "memory_bytes": maybe(INT), "available_bytes": maybe(INT), "governor": maybe(STR),
        "mhz_max": maybe(NUM), "load_start": maybe([NUM]), "load_end": maybe([NUM]),
        "other_cpus": maybe(NUM), "steal_cpus": maybe(NUM),
    },
    "plan": {
        "reps": INT, "sample_s": NUM, "buffer_bytes": INT, "shape": [INT], "threads": [INT], "pinned": bool,
        "tokens": [INT], "attention": BOOL, "keys": INT, "heads": INT, "head_dim": INT,
        "seed": INT,
    },
    "wall_s": NUM,
    "ram": [{"threads": INT, "bytes": NUM, "gb_s_before": NUM, "gb_s_after": NUM, "before": TIME,
             "after": TIME}],
    "peaks": [{"instruction": STR, "unit": STR, "level": STR, "threads": INT, "macs_per_s": NUM,
               "best_macs_per_s": NUM, "time": TIME}],
    "results": [{
        "kernel": STR, "type": STR, "level": STR, "own": BOOL, "threads": INT, "tokens": INT,
        "from": STR, "shape": [INT], "bytes": NUM, "macs": NUM, "time": TIME, "gb_s": NUM,
        "best_gb_s": NUM, "top_s": NUM, "best_top_s": NUM, "ram_before_gb_s": maybe(NUM),
        "ram_after_gb_s": maybe(NUM), "limit": maybe(LIMIT),
    }],
    "warnings": [STR],
}


def check(value, schema, where):
    if isinstance(schema, tuple) and schema[0] == MAYBE:
        if value is not None:
            check(value, schema[1], where)
    elif isinstance(schema, dict):
        assert isinstance(value, dict), f"{where}: no object"
        assert set(value) == set(schema), f"{where}: keys {sorted(set(value) ^ set(schema))}"
        for key, want in schema.items():
            check(value[key], want, f"{where}.{key}")
    elif isinstance(schema, list):
        assert isinstance(value, list), f"{where}: no array"
        for i, v in enumerate(value):
            check(v, schema[0], f"{where}[{i}]")
    else:
        good = isinstance(value, schema) and (schema is BOOL or not isinstance(value, bool))
        assert good, f"{where}: {value!r}"


def near(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def check_numbers(j):
    for r in j["results"]:
        t = r["time"]
        assert 0 < t["best_s"] <= t["median_s"] <= t["worst_s"], t
        assert near(r["gb_s"], r["bytes"] / t["median_s"] / 1e9), r
        assert near(r["top_s"], 2 * r["macs"] / t["median_s"] / 1e12), r
        assert r["from"] in ("ram", "cache") and r["kernel"] in ("gemv", "gemm", "attention"), r
        assert (r["ram_before_gb_s"] is not None) == (r["from"] == "ram"), r
        if r["limit"]:
            assert near(r["limit"]["share"], r["limit"]["seconds"] / t["median_s"]), r
    assert [m["threads"] for m in j["ram"]] == j["plan"]["threads"]
    assert all(p["unit"] in ("int8", "fma") for p in j["peaks"])


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        j = json.load(f)
    check(j, SCHEMA, "")
    check_numbers(j)
    kv = {r["type"] for r in j["results"] if r["kernel"] == "attention"}
    assert kv == ({"F32", "F16", "Q8_0"} if j["plan"]["attention"] else set()), kv
    have = {r["type"] for r in j["results"] if r["kernel"] != "attention"}
    assert have >= set(sys.argv[2:]), have
    print("ok")


if __name__ == "__main__":
    main()

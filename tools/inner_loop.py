#!/usr/bin/env python3
"""Count the instructions per weight of the matrix products, from the disassembly of object files.

    tools/inner_loop.py X86_BUILD ARM_BUILD

The two arguments are build directories of the library, for x86-64 and for 64-bit Arm (cmake
--preset aarch64). Prints two Markdown tables: the product with one token, whose loop over the blocks
of a group of rows is counted whole (unpacking, products, scales, the sums of lanes, the float steps,
prefetching), and the product of many tokens with an unpacked tile, counted over one group of scales
or block.

How much a loop does is read off its multiplications: each multiplies as many weights as its vector
holds. A loop inside the block loop counts as often as its multiplications say.
"""
import argparse
import pathlib
import re
import subprocess
import sys

# Weights in the blocks of a type.
BLOCK = {"Q4_K": 256, "Q6_K": 256, "Q8_0": 32, "MXFP4": 32}

# Per level: tool, pattern of a multiplication of bytes, weights (times tokens) in one, rows of a
# group, and per type: object file, function of one token, function of many.
NEON = r"s(mull|mlal)2?\s+v\d+\.8h"
LEVELS = {
    "AVX2": ("objdump", r"vpmaddubsw\s.*%ymm", 32, 8, {
        "Q4_K": ("mat_avx2_k.c", "kernels_gemv_q4k_avx2", "mat_avx2_gemm.c", "mul_q4k"),
        "Q6_K": ("mat_avx2_k.c", "kernels_gemv_q6k_avx2", "mat_avx2_gemm.c", "mul_q6k"),
        "Q8_0": ("mat_avx2_32.c", "kernels_gemv_q8_0_avx2", "mat_avx2_gemm.c", "mul_q8_0"),
        "MXFP4": ("mat_avx2_32.c", "kernels_gemv_mxfp4_avx2", "mat_avx2_gemm.c", "mul_mxfp4")}),
}
for level, regex, size in (("NEON", NEON, 8), ("dotprod", r"sdot\s", 16), ("i8mm", r"smmla\s", 32)):
    gemv = "neon" if level == "NEON" else "dotprod"
    gemm = "mat_i8mm.c" if level == "i8mm" else f"mat_{gemv}_gemm.c"
    LEVELS[level] = ("aarch64-linux-gnu-objdump", regex, size, 4, {
        t: (f"mat_{gemv}_gemv.c", f"kernels_gemv_{n}_{gemv}", gemm, many)
        for t, n, many in (("Q4_K", "q4k", "mul_k_32_true"), ("Q6_K", "q6k", "mul_k_16_false"),
                           ("Q8_0", "q8_0", "mul_q8_0"), ("MXFP4", "mxfp4", "mul_mxfp4"))})

JUMP = re.compile(r"^(j\w+|b|b\.\w+|cbn?z|tbn?z)\s")
NO_FALL_THROUGH = re.compile(r"^(jmp|b|ret\w*)(\s|$)")
PADDING = re.compile(r"^(nop|cs nop|data16|xchg\s+%ax,%ax)")


def disassemble(tool, path, function):
    """The instructions of a function: a list of (address, text), without padding."""
    out = subprocess.run([tool, "-d", "--no-show-raw-insn", f"--disassemble={function}", str(path)],
                         check=True, capture_output=True, text=True).stdout
    code = []
    for line in out.splitlines():
        m = re.match(r"^\s*([0-9a-f]+):\s+(.*)$", line)
        if m:
            code.append((int(m.group(1), 16), m.group(2)))
    if not code:
        sys.exit(f"{path}: no function {function}")
    same = re.search(r"<(\w+)>$", code[0][1]) if JUMP.match(code[0][1]) else None
    if same:  # the compiler keeps one of several equal functions
        return disassemble(tool, path, same.group(1))
    return code


def successors(code):
    """For each instruction the indices of those that may follow it."""
    index = {address: i for i, (address, _) in enumerate(code)}
    result = []
    for i, (_, text) in enumerate(code):
        follow = []
        if not NO_FALL_THROUGH.match(text) and i + 1 < len(code):
            follow.append(i + 1)
        target = re.search(r"\b([0-9a-f]+) <", text) if JUMP.match(text) else None
        if target and int(target.group(1), 16) in index:
            follow.append(index[int(target.group(1), 16)])
        result.append(follow)
    return result


def dominators(follow, before):
    """For each instruction the set of those that every path to it passes, as bits of an integer."""
    everything = (1 << len(follow)) - 1
    dom = [everything] * len(follow)
    dom[0] = 1
    changed = True
    while changed:
        changed = False
        for i in range(1, len(follow)):
            new = everything
            for p in before[i]:
                new &= dom[p]
            new |= 1 << i
            if new != dom[i]:
                dom[i] = new
                changed = True
    return dom


def natural_loops(code):
    """Sets of instructions, one per loop head: those that reach a jump back to it."""
    follow = successors(code)
    before = [[] for _ in code]
    for i, targets in enumerate(follow):
        for t in targets:
            before[t].append(i)
    dom = dominators(follow, before)
    loops = {}
    for i, targets in enumerate(follow):
        for head in targets:
            if not dom[i] >> head & 1:
                continue
            loop = loops.setdefault(head, {head})
            todo = [i]
            while todo:
                at = todo.pop()
                if at not in loop:
                    loop.add(at)
                    todo.extend(before[at])
    return sorted(loops.values(), key=len)


def count(code, loop, products):
    """Instructions and multiplications of a loop."""
    texts = [code[i][1] for i in loop if not PADDING.match(code[i][1])]
    return len(texts), sum(1 for t in texts if re.match(products, t))


def most_products(code, loops, products):
    """The innermost loop with the most multiplications."""
    inner = [l for l in loops if count(code, l, products)[1] > 0
             and not any(m < l and count(code, m, products)[1] for m in loops)]
    return max(inner, key=lambda l: count(code, l, products)[1])


def one_token(tool, path, function, products, size, want):
    """Instructions per weight of the block loop, which multiplies want weights."""
    code = disassemble(tool, path, function)
    loops = natural_loops(code)
    inner = most_products(code, loops, products)
    instructions, muls = count(code, inner, products)
    if muls * size >= want:
        return instructions / (muls * size)
    outer = next(l for l in loops if inner < l)
    times = want // (muls * size)
    return (count(code, outer, products)[0] + (times - 1) * instructions) / want


def many_tokens(tool, path, function, products, size):
    code = disassemble(tool, path, function)
    instructions, muls = count(code, most_products(code, natural_loops(code), products), products)
    return instructions / (muls * size)


def table(title, rows):
    names = list(LEVELS)
    print(f"| {title} | " + " | ".join(names) + " | " +
          " | ".join(f"{n} / AVX2" for n in names[1:]) + " |")
    print("|" + " --- |" * (2 * len(names)))
    for name, values in rows:
        ratios = [f"{v / values[0]:.2f}" for v in values[1:]]
        print(f"| {name} | " + " | ".join([f"{v:.3f}" for v in values] + ratios) + " |")


def find(build, name):
    found = sorted(pathlib.Path(build).glob(f"**/{name}.o"))
    if not found:
        sys.exit(f"{build}: no {name}.o")
    return found[0]


def main():
    args = argparse.ArgumentParser(description="instructions per weight of the matrix products")
    args.add_argument("x86_build")
    args.add_argument("arm_build")
    args = args.parse_args()
    one, many = [], []
    for kind, block in BLOCK.items():
        single, multi = [], []
        for level, (tool, products, size, rows, functions) in LEVELS.items():
            build = args.x86_build if level == "AVX2" else args.arm_build
            gemv_file, gemv, gemm_file, gemm = functions[kind]
            gemv_products, gemv_size = (products, size) if level != "i8mm" else (r"sdot\s", 16)
            single.append(one_token(tool, find(build, gemv_file), gemv, gemv_products, gemv_size,
                                    rows * block))
            multi.append(many_tokens(tool, find(build, gemm_file), gemm, products, size))
        one.append((kind, single))
        many.append((kind, multi))
    table("one token: instructions per weight", one)
    print()
    table("many tokens: instructions per weight and token", many)


if __name__ == "__main__":
    main()

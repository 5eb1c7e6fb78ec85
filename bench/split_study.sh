#!/bin/sh
# Do experts that are read in pieces arrive sooner? `infer` with split A against split B, for one tree of packed experts
# after the other: each is packed, brought into the page cache, measured in alternating runs (scripts/ab.sh) and deleted.
# usage: bench/split_study.sh [-d DIR] [-n TOKENS] [-w TOKENS] [-r REPEATS] [-s 'A B'] [-t 'TREE...'] [-p PROMPT]
#                             MODEL.gguf [options of infer for all runs]
#   -d  where trees are made, in a folder of its own ($TMPDIR, else /tmp); there must be room for one at a time
#   -n  tokens of a run (200)        -w  tokens of the warm-up before each (16)       -r  repeats (3): A B, B A, A B
#   -s  the two values of --cache-io-split ('1 4')
#   -t  trees, of plain (the model's own bytes), 4bit, q3, 2bit ('plain q3 2bit')
#   -p  the prompt ('What is Apple Neural Engine?')
# Options for a model whose greedy text goes round in circles: --temp 2 --seed 1, or --route-replay TRACE.
# Prints two Markdown tables: medians, and every run. Nothing else should run meanwhile.
set -eu
here=${0%/*}
[ "$here" != "$0" ] || here=.
# shellcheck source=scripts/bench-sensors.sh
. "$here/../scripts/bench-sensors.sh"

usage() {
    sed -n '/^# usage/,/^#   -p/p' "$0" | sed 's/^# //' >&2
    exit 2
}
fail() {
    echo "split_study: $*" >&2
    exit 1
}
parent=${TMPDIR:-/tmp} tokens=200 warm=16 repeats=3 splits='1 4' trees='plain q3 2bit' prompt='What is Apple Neural Engine?'
while getopts d:n:w:r:s:t:p: option; do
    case $option in
    d) parent=$OPTARG ;;
    n) tokens=$OPTARG ;;
    w) warm=$OPTARG ;;
    r) repeats=$OPTARG ;;
    s) splits=$OPTARG ;;
    t) trees=$OPTARG ;;
    p) prompt=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || usage
model=$1
shift
split_a=${splits%% *} split_b=${splits#* }
for n in "$split_a" "$split_b"; do
    case $n in
    '' | *[!0-9]*) usage ;;
    esac
done
for tree in $trees; do
    case $tree in
    plain | 4bit | q3 | 2bit) ;;
    *) usage ;;
    esac
done
sensors_find_sluice "$here/../scripts" || exit 2
infer=${sluice%/*}/infer
[ -x "$infer" ] || fail "$infer is not there: build the target infer"

dir=$(mktemp -d "$parent/split-study.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

# The option of pack, of infer, and the folder, of a tree.
name_tree() { # TREE
    pack='' use='' folder=packed_experts
    case $1 in
    4bit) pack=--4bit use=--4bit ;;
    q3) pack=--q3 use=--q3-experts folder=packed_experts_Q3 ;;
    2bit) pack=--2bit use=--2bit folder=packed_experts_2bit ;;
    esac
}

# Room for each tree, before hours are spent on the first; rows of a kind that cannot be requantised, too.
for tree in $trees; do
    name_tree "$tree"
    "$sluice" pack "$model" -o "$dir/trees" ${pack:+"$pack"} --dry-run >"$dir/plan" ||
        fail "the tree $tree cannot be made in $parent"
    sed -n "s/^to write */split_study: $tree takes /p" "$dir/plan" >&2
done

# A file's pages leave the page cache; only what is on the drive can leave.
drop_pages() { # FILE
    dd if="$1" iflag=nocache count=0 2>/dev/null || :
}
# Read from begin to end: how pages enter the page cache decides how fast they come out (docs/cachebench.md).
bring_in() { # FILE...
    sync
    drop_pages "$model"
    for file; do
        drop_pages "$file"
        cat "$file" >/dev/null
    done
    tree_kib=$(du -k -c "$@" | awk 'END { print $1 }')
    sensors_find ""
    sensors_read
    if [ -n "$available_kib" ] && [ "$tree_kib" -gt "$available_kib" ]; then
        echo "warning: the tree $tree has $((tree_kib / 1024)) MiB, of memory $((available_kib / 1024)) MiB are available:" \
            "part of it comes from the drive" >>"$dir/warnings"
    fi
}

: >"$dir/warnings"
echo "tree,round,variant,tok_s,io_ms,total_ms,ttft_ms" >"$dir/all.csv"
for tree in $trees; do
    name_tree "$tree"
    echo "split_study: packing $tree" >&2
    "$sluice" pack "$model" -o "$dir/trees" ${pack:+"$pack"} 2>"$dir/log" || {
        tail -n 3 "$dir/log" >&2
        exit 1
    }
    bring_in "$dir/trees/$folder"/layer_*.bin
    echo "split_study: measuring $tree" >&2
    # ab.sh splits the program's words as a shell does; the path may hold anything but a quote.
    "$here/../scripts/ab.sh" -a "'$infer' --model '$dir/trees' $use" -A "--cache-io-split $split_a" \
        -B "--cache-io-split $split_b" -n "$tokens" -w "$warm" -r "$repeats" -o "$dir/$tree.csv" -- \
        ${prompt:+--prompt "$prompt"} --ignore-eos "$@" >"$dir/$tree.md"
    grep -E '^(warning|tokens): ' "$dir/$tree.md" | grep -v 'tokens: the same' | sed "s/\$/ ($tree)/" >>"$dir/warnings" || :
    sed "1d;s/^/$tree,/" "$dir/$tree.csv" | cut -d , -f 1-7 >>"$dir/all.csv"
    rm -rf "$dir/trees"
done

awk -F, -v a="$split_a" -v b="$split_b" -v n="$repeats" '
    function median(tree, variant, column, v, k, i, j, t) {
        k = 0
        for (i = 1; i <= rows; i++)
            if (cell[i, 1] == tree && cell[i, 3] == variant && cell[i, column] != "") v[++k] = cell[i, column] + 0
        if (k == 0) return "-"
        for (i = 2; i <= k; i++)
            for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return sprintf("%.2f", k % 2 ? v[(k + 1) / 2] : (v[k / 2] + v[k / 2 + 1]) / 2)
    }
    function split_of(variant) { return variant == "A" ? a : b }
    NR > 1 {
        rows++
        for (i = 1; i <= 7; i++) cell[rows, i] = $i
        if (!($1 in seen)) { seen[$1] = 1; tree[++trees] = $1 }
    }
    END {
        print "| experts | split | decode tok/s | expert I/O ms | total ms/token | TTFT ms |"
        print "| --- | --- | --- | --- | --- | --- |"
        for (t = 1; t <= trees; t++)
            for (k = 1; k <= 2; k++) {
                v = k == 1 ? "A" : "B"
                printf "| %s | %s | %s | %s | %s | %s |\n", tree[t], split_of(v), median(tree[t], v, 4), median(tree[t], v, 5),
                    median(tree[t], v, 6), median(tree[t], v, 7)
            }
        printf "\nMedians of %d repeats; all runs in their order:\n\n", n
        print "| experts | repeat | split | decode tok/s | expert I/O ms | total ms/token | TTFT ms |"
        print "| --- | --- | --- | --- | --- | --- | --- |"
        for (i = 1; i <= rows; i++)
            printf "| %s | %s | %s | %.2f | %.2f | %.2f | %.0f |\n", cell[i, 1], cell[i, 2], split_of(cell[i, 3]), cell[i, 4],
                cell[i, 5], cell[i, 6], cell[i, 7]
    }' "$dir/all.csv"
if [ -s "$dir/warnings" ]; then
    echo
    sort -u "$dir/warnings"
fi

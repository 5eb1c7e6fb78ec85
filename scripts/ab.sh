#!/bin/sh
# Which of two ways to run is faster? Alternating runs, each behind a short warm-up of its own.
# usage: scripts/ab.sh [-A OPTIONS] [-B OPTIONS] [-a PROGRAM] [-b PROGRAM] [-n TOKENS] [-w TOKENS] [-r ROUNDS]
#                      [-o FILE.csv] [--] [options of both]
#   -A, -B  what is different: options of A and of B
#   -a, -b  programs with their first words; -b is like -a unless given ("sluice bench")
#   -n  tokens of a measured run (200)         -w  tokens of the warm-up before each, 0 for none (16)
#   -r  rounds (3): A B, B A, A B, ...         -o  also write every run's numbers as CSV
# PROGRAM and OPTIONS are split as a shell does, quotes included. Examples:
#   scripts/ab.sh -A '--cache-io-split 1' -B '--cache-io-split 4' model.gguf --cache-mb 2000
#   scripts/ab.sh -a 'old/sluice bench' -b 'new/sluice bench' model.gguf
# Prints a Markdown table: means, medians, spread; B against A in each round; whether both wrote the same tokens.
set -eu
here=${0%/*}
[ "$here" != "$0" ] || here=.
# shellcheck source=scripts/bench-sensors.sh
. "$here/bench-sensors.sh"

usage() {
    sed -n '/^# usage/,/^# PROGRAM/p' "$0" | sed 's/^# //' >&2
    exit 2
}
number() { # OPTION VALUE LEAST
    case $2 in
    '' | *[!0-9]*) echo "ab: $1: '$2' is no whole number" >&2 && exit 2 ;;
    esac
    if [ "$2" -lt "$3" ]; then
        echo "ab: $1: $2 is less than $3" >&2
        exit 2
    fi
}

tokens=200 warm=16 rounds=3 program_a='' program_b='' flags_a='' flags_b='' out=''
while getopts n:w:r:A:B:a:b:o: option; do
    case $option in
    n) number -n "$OPTARG" 1 && tokens=$OPTARG ;;
    w) number -w "$OPTARG" 0 && warm=$OPTARG ;;
    r) number -r "$OPTARG" 1 && rounds=$OPTARG ;;
    A) flags_a=$OPTARG ;;
    B) flags_b=$OPTARG ;;
    a) program_a=$OPTARG ;;
    b) program_b=$OPTARG ;;
    o) out=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
if [ -z "$program_b$flags_a$flags_b" ]; then
    echo "ab: A and B are the same: give -A, -B or -b" >&2
    usage
fi
if [ -z "$program_a" ]; then
    sensors_find_sluice "$here" || exit 2
    # shellcheck disable=SC2016 # expanded by the eval below
    program_a='"$sluice" bench'
fi
program_b=${program_b:-$program_a}

work=$(mktemp -d "${TMPDIR:-/tmp}/ab.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
runs=$work/runs.csv
echo "round,variant,tok_s,io_ms,total_ms,ttft_ms,hit_pct,mib_per_token" >"$runs"

# run VARIANT TOKENS CSV [options of both]
run() {
    # shellcheck disable=SC2034 # used by the eval
    variant=$1 n=$2 csv=$3
    shift 3
    if [ "$variant" = A ]; then
        words="$program_a $flags_a"
    else
        words="$program_b $flags_b"
    fi
    if ! eval "$words"' "$@" -n "$n" --csv "$csv" --ids-out "$work/$variant.ids"' \
        >"$work/stdout" 2>"$work/stderr" </dev/null; then
        echo "ab: $variant failed: $words $*" >&2
        tail -n 5 "$work/stderr" >&2
        exit 1
    fi
    grep '^warning:' "$work/stdout" >>"$work/warnings" || :
}

# The trailer of a CSV of sluice as one row.
row() { # ROUND VARIANT CSV
    awk -v round="$1" -v variant="$2" '
        /^# summary/ { end = 1 }
        end && match($0, "=") { v[substr($0, 3, RSTART - 3)] = substr($0, RSTART + 1) }
        function ms(x) { return x == "" ? "" : sprintf("%.4f", 1000 * x) }
        END {
            if (v["tok_s"] == "") exit 1
            print round "," variant "," v["tok_s"] "," ms(v["stall_s"]) "," ms(v["s_per_token"]) "," \
                ms(v["ttft_s"]) "," v["hit_pct"] "," v["mib_per_token"]
        }' "$3" || {
        echo "ab: $3 has no summary" >&2
        exit 1
    }
}

: >"$work/warnings"
same=yes round=1
while [ "$round" -le "$rounds" ]; do
    order='A B'
    [ $((round % 2)) -eq 1 ] || order='B A'
    for v in $order; do
        if [ "$warm" -gt 0 ]; then
            run "$v" "$warm" "$work/warm.csv" "$@"
        fi
        run "$v" "$tokens" "$work/$v.csv" "$@"
        row "$round" "$v" "$work/$v.csv" >>"$runs"
        tail -n 1 "$runs" | awk -F, '{ printf "round %s, %s: %.3f tok/s\n", $1, $2, $3 }' >&2
    done
    cmp -s "$work/A.ids" "$work/B.ids" || same=no
    round=$((round + 1))
done
[ -z "$out" ] || cp "$runs" "$out"

awk -F, -v tokens="$tokens" -v warm="$warm" '
    function sort(a, n, i, j, t) {
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && a[j - 1] + 0 > a[j] + 0; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
    }
    # Of a column of one variant: mean, median, least and greatest in m[]. 0: nothing was measured.
    function stats(variant, column, m, a, n, i, sum) {
        n = 0; sum = 0
        for (i = 1; i <= rows; i++)
            if (who[i] == variant && cell[i, column] != "") { a[++n] = cell[i, column]; sum += cell[i, column] }
        if (n == 0) return 0
        sort(a, n)
        m["mean"] = sum / n; m["least"] = a[1]; m["most"] = a[n]
        m["median"] = n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
        return n
    }
    function show(variant, column, form, m) {
        return stats(variant, column, m) ? sprintf(form, m["median"]) : "-"
    }
    function line(variant, m) {
        stats(variant, 3, m)
        printf "| %s | %.3f | %.3f | %.3f to %.3f | %.1f %% | %s | %s | %s | %s | %s |\n", variant, m["mean"],
            m["median"], m["least"], m["most"], 100 * (m["most"] - m["least"]) / m["median"],
            show(variant, 4, "%.2f"), show(variant, 5, "%.2f"), show(variant, 6, "%.0f"), show(variant, 7, "%.1f"),
            show(variant, 8, "%.1f")
        return m["median"]
    }
    NR > 1 {
        who[++rows] = $2
        for (i = 3; i <= 8; i++) cell[rows, i] = $i
        speed[$1, $2] = $3
        if ($1 > rounds) rounds = $1
    }
    END {
        printf "%d rounds, %d tokens each behind a warm-up of %d; columns without a range are medians\n\n", rounds, tokens, warm
        print "| | tok/s, mean | median | range | spread | expert I/O ms | total ms/token | TTFT ms | hit % | MiB/token |"
        print "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
        a = line("A"); b = line("B")
        least = most = wins = 0
        for (i = 1; i <= rounds; i++) {
            q = speed[i, "B"] / speed[i, "A"]
            if (i == 1 || q < least) least = q
            if (i == 1 || q > most) most = q
            wins += q > 1
        }
        printf "\nB / A: %.3f of the medians; by round %.3f to %.3f, B faster in %d of %d\n", b / a, least, most, wins, rounds
    }' "$runs"
echo "A: $program_a $flags_a"
echo "B: $program_b $flags_b"
[ $# -eq 0 ] || echo "both: $*"
if [ "$same" = yes ]; then
    echo "tokens: the same in A and B"
else
    echo "tokens: DIFFERENT in A and B: one of the options changes the text, or the sampling is not the same"
fi
# infer does not look at its answer as bench does: more than a quarter of its runs of four tokens seen before is a loop.
if [ "$tokens" -ge 16 ] && ! grep -q 'ids repeat' "$work/warnings"; then
    od -A n -v -t d4 "$work/A.ids" | awk -v n="$tokens" '
        { for (i = 1; i <= NF; i++) id[++k] = $i }
        END {
            for (i = k > n ? k - n + 1 : 1; i + 3 <= k; i++) {
                four = id[i] " " id[i + 1] " " id[i + 2] " " id[i + 3]
                repeated += four in seen
                seen[four] = 1
                all++
            }
            if (all && 100 * repeated / all > 25)
                printf "warning: the generated ids repeat (%.0f %% of the runs of four): a loop needs the same experts " \
                    "again and again; use --temp 2 --seed 1, or --route-replay\n", 100 * repeated / all
        }' >>"$work/warnings"
fi
sort -u "$work/warnings"

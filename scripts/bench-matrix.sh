#!/bin/sh
# Models by configurations, each cell on a machine that has cooled down and got its memory back; then all again in
# reversed order, which shows what an earlier cell did to a later one.
# usage: scripts/bench-matrix.sh -o DIR [-n TOKENS] [-c FILE] [-T CELSIUS] [-F MIB] [-W SECONDS] [-1] MODEL...
#   -o  where records go; index.csv lists the cells (docs/benchmark-method.md)
#   -n  tokens of a cell (256)
#   -c  configurations instead of the eight: lines NAME OPTIONS, # starts a comment
#   -T  a cell starts when the hottest CPU sensor is at most that (5 above what it is at the start, at least 45)
#   -F  and at least so much is available (95 % of what is at the start)
#   -W  for at most so long it is waited for that (180); the index says which cells started without it
#   -1  no second pass in reversed order
# Prints a Markdown table. The exit status is 1 when a cell failed. Environment: as of bench-run.sh.
set -eu
here=${0%/*}
[ "$here" != "$0" ] || here=.
# shellcheck source=scripts/bench-sensors.sh
. "$here/bench-sensors.sh"

# Passes that differ by more are told about, in per cent.
moved=10

usage() {
    sed -n '/^# usage/,/^#   -1/p' "$0" | sed 's/^# //' >&2
    exit 2
}
number() { # OPTION VALUE
    case $2 in
    '' | *[!0-9]*) echo "bench-matrix: $1: '$2' is no whole number" >&2 && exit 2 ;;
    esac
}
dir='' tokens=256 file='' hot='' free='' patience=180 passes=2
while getopts o:n:c:T:F:W:1 option; do
    case $option in
    o) dir=$OPTARG ;;
    n) number -n "$OPTARG" && tokens=$OPTARG ;;
    c) file=$OPTARG ;;
    T) number -T "$OPTARG" && hot=$((OPTARG * 10)) ;;
    F) number -F "$OPTARG" && free=$((OPTARG * 1024)) ;;
    W) number -W "$OPTARG" && patience=$OPTARG ;;
    1) passes=1 ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
if [ -z "$dir" ] || [ $# -eq 0 ]; then
    usage
fi
if [ -n "$file" ] && [ ! -r "$file" ]; then
    echo "bench-matrix: cannot read $file" >&2
    exit 2
fi
sensors_find_sluice "$here" || exit 2
SLUICE=$sluice
export SLUICE
mkdir -p "$dir"
index=$dir/index.csv
if [ -e "$index" ]; then
    echo "bench-matrix: $index is there already; name another folder" >&2
    exit 2
fi

# ---- Conditions ----

sensors_find "${BENCH_ROOT:-}"
sensors_read
if [ -z "$hot" ] && [ -n "$temp_dc" ]; then
    hot=$((temp_dc + 50))
    [ "$hot" -ge 450 ] || hot=450
fi
if [ -z "$free" ] && [ -n "$available_kib" ]; then
    # shellcheck disable=SC2017 # the product could pass 2^31
    free=$((available_kib / 100 * 95))
fi

# What is still too hot or too small, in $missing; what the machine cannot tell does not hold a cell up.
check_conditions() {
    sensors_read
    missing=
    if [ -n "$hot" ] && [ -n "$temp_dc" ] && [ "$temp_dc" -gt "$hot" ]; then
        missing=temperature
    fi
    if [ -n "$free" ] && [ -n "$available_kib" ] && [ "$available_kib" -lt "$free" ]; then
        missing=$missing${missing:++}memory
    fi
}
wait_for_conditions() {
    waited=0
    check_conditions
    while [ -n "$missing" ] && [ "$waited" -lt "$patience" ]; do
        sleep 1
        waited=$((waited + 1))
        check_conditions
    done
}

# ---- Cells ----

# The eight: the protocol and one change each, two with fewer experts.
list_configurations() { # MODEL
    if [ -n "$file" ]; then
        grep -v '^[[:space:]]*\(#\|$\)' "$file"
        return
    fi
    cat <<END
protocol
no-cache --cache-mb 0
no-overlap --no-overlap
buffered --no-odirect
dense-mmap --dense-weights mmap
drop-cold --drop-cold-experts 0.5
END
    k=$("$sluice" info --json "$1" | sed -n 's/^ *"experts_used": *\([0-9]*\).*/\1/p')
    if [ "${k:-0}" -gt 1 ]; then
        echo "topk-three-quarters --n-expert-used $((3 * k / 4))"
        echo "topk-half --n-expert-used $((k / 2))"
    fi
}

# CSV quotes a field with " and doubles those inside.
quoted() {
    printf '"%s"' "$(printf %s "$1" | sed 's/"/""/g')"
}

# result CSV NAME: a number of the trailer.
result() {
    sed -n '/^# summary/,$s/^# '"$2"'=//p' "$1" 2>/dev/null || :
}

cell=0 failed=0
run_cell() { # PASS MODEL NAME OPTIONS
    cell=$((cell + 1))
    base=cell-$(printf %03d "$cell")-$(printf %s "$3" | sed 's/[^A-Za-z0-9._-]/-/g')
    wait_for_conditions
    sensors_tenths "$temp_dc"
    before_temp=$tenths
    sensors_mib "$available_kib"
    before_mib=$mib
    [ -z "$missing" ] || echo "bench-matrix: cell $cell starts without: $missing, after $waited s" >&2
    rc=0
    # shellcheck disable=SC2086 # options are words
    "$here/bench-run.sh" "$tokens" "$2" "$dir/$base.csv" "$dir/$base.metrics" $4 >"$dir/$base.out" 2>"$dir/$base.log" \
        </dev/null || rc=$?
    speed=$(result "$dir/$base.csv" tok_s)
    if [ "$rc" -ne 0 ]; then
        failed=$((failed + 1))
        echo "bench-matrix: cell $cell ($3) failed: $(grep '^sluice: ' "$dir/$base.log" | tail -n 1)" >&2
    fi
    echo "$cell,$1,$(quoted "$2"),$(quoted "$3"),$(quoted "$4"),$waited,$missing,$before_temp,$before_mib,$rc,$speed,$base.csv,$base.metrics" \
        >>"$index"
    echo "cell $cell, pass $1, $3: ${speed:-failed}${speed:+ tok/s}" >&2
}

tab=$(printf '\t')
for model; do
    case $model in
    *"$tab"* | *"
"*)
        echo "bench-matrix: a model's name with tabs or ends of lines cannot be listed: $model" >&2
        exit 2
        ;;
    esac
done

plan=$dir/plan.tmp
trap 'rm -f "$plan" "$plan.2"' EXIT
trap 'exit 130' INT TERM
for model; do
    list_configurations "$model" | while read -r name options; do
        printf '%s\t%s\t%s\n' "$model" "$name" "$options"
    done
done >"$plan"
[ -s "$plan" ] || {
    echo "bench-matrix: no configurations" >&2
    exit 2
}

echo "cell,pass,model,config,options,waited_s,gave_up,temp_before_c,mem_available_before_mib,exit,tok_s,csv,metrics" >"$index"
pass=1
while [ "$pass" -le "$passes" ]; do
    # On a descriptor of its own: what runs inside reads nothing of it.
    while IFS=$tab read -r model name options <&3; do
        run_cell "$pass" "$model" "$name" "$options"
    done 3<"$plan"
    sed -n '1!G;h;$p' "$plan" >"$plan.2"
    mv "$plan.2" "$plan"
    pass=$((pass + 1))
done

# ---- The table ----

# Cells of the second pass stand in reversed order: cell i of n and cell 2n + 1 - i are the same.
awk -v moved="$moved" '
    # Fields of a line of CSV into f[].
    function split_csv(line, f, n, at, c, quoted, text) {
        n = 1; text = ""; quoted = 0
        for (at = 1; at <= length(line); at++) {
            c = substr(line, at, 1)
            if (c == "\"") {
                if (quoted && substr(line, at + 1, 1) == "\"") { text = text c; at++ } else quoted = !quoted
            } else if (c == "," && !quoted) { f[n++] = text; text = "" }
            else text = text c
        }
        f[n] = text
        return n
    }
    NR == 1 { next }
    {
        split_csv($0, f)
        if (f[2] == 1) { n++; model[n] = f[3]; name[n] = f[4]; options[n] = f[5]; first[n] = f[11]; gave[n] = f[7] }
        else { m++; second[n + 1 - m] = f[11]; if (f[7] != "") gave[n + 1 - m] = gave[n + 1 - m] (gave[n + 1 - m] != "" ? ", " : "") f[7] }
    }
    END {
        print "| model | configuration | options | tok/s | reversed order | difference | started without |"
        print "| --- | --- | --- | --- | --- | --- | --- |"
        for (i = 1; i <= n; i++) {
            sub(/^.*\//, "", model[i])
            change = "-"
            if (first[i] != "" && second[i] != "") {
                d = 100 * (second[i] - first[i]) / first[i]
                change = sprintf("%+.1f %%", d)
                if (d > moved || d < -moved) { change = change " !"; marked++ }
            }
            printf "| %s | %s | %s | %s | %s | %s | %s |\n", model[i], name[i], options[i] == "" ? "-" : "`" options[i] "`",
                first[i] == "" ? "failed" : sprintf("%.3f", first[i]), second[i] == "" ? "-" : sprintf("%.3f", second[i]),
                change, gave[i] == "" ? "-" : gave[i]
        }
        if (marked) printf "\n! %d of %d cells differ by more than %d %% between the passes: their order, heat or other work shows in them\n", marked, n, moved
    }' "$index"
[ "$failed" -eq 0 ]

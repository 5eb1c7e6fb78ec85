#!/bin/sh
# From nothing to two Markdown tables, ready to paste: this machine and its drive, and a model's speed on it by the
# protocol of `sluice bench`.
# usage: scripts/bench-report.sh [-o DIR] [-r RUNS] [-n TOKENS] [-s SECONDS] [-m MINUTES] MODEL [options of sluice bench]
#   -o  keep every record there: machine.txt, iobench.json, and of each run result-K.json, run-K.csv, run-K.metrics
#   -r  runs of the protocol (3); the table has their median and range
#   -n  tokens of each (256)      -s  seconds for each row of iobench (1)
#   -m  no run after the first begins that would end later than so many minutes after the start (9)
# Environment: as of bench-run.sh.
set -eu
here=${0%/*}
[ "$here" != "$0" ] || here=.
# shellcheck source=scripts/bench-sensors.sh
. "$here/bench-sensors.sh"

usage() {
    sed -n '/^# usage/,/^#   -m/p' "$0" | sed 's/^# //' >&2
    exit 2
}
dir='' runs=3 tokens=256 seconds=1 minutes=9
while getopts o:r:n:s:m: option; do
    case $option in
    o) dir=$OPTARG ;;
    r) runs=$OPTARG ;;
    n) tokens=$OPTARG ;;
    s) seconds=$OPTARG ;;
    m) minutes=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || usage
model=$1
shift
case $runs in
'' | *[!0-9]* | 0) echo "bench-report: -r: '$runs' is no number of runs" >&2 && exit 2 ;;
esac
case $minutes in
'' | *[!0-9]* | ?????*) echo "bench-report: -m: '$minutes' is no number of minutes" >&2 && exit 2 ;;
esac
sensors_find_sluice "$here" || exit 2
sensors_clock
start_cs=$clock_cs
root=${BENCH_ROOT:-}
if [ -n "$dir" ]; then
    mkdir -p "$dir"
else
    dir=$(mktemp -d "${TMPDIR:-/tmp}/bench-report.XXXXXX")
    trap 'rm -rf "$dir"' EXIT
    trap 'exit 130' INT TERM
fi

# The value of a member in our own JSON, which has one a line; the first where there are several.
member() { # FILE NAME
    sed -n 's/^ *"'"$2"'": *"\{0,1\}\(.*[^",]\)"\{0,1\},\{0,1\}$/\1/p' "$1" | head -n 1
}

# ---- The machine ----

cpu_name() {
    name=$(sed -n 's/^\(model name\|Hardware\|Model\)[[:space:]]*: *//p' "$root/proc/cpuinfo" 2>/dev/null | head -n 1)
    echo "${name:-not known}"
}
memory_gib() {
    awk '$1 == "MemTotal:" { printf "%.1f GiB\n", $2 / 1048576; ok = 1 } END { if (!ok) print "not known" }' \
        "$root/proc/meminfo" 2>/dev/null || echo "not known"
}
# Model, kind and size of the drive that holds the model, and its file system.
drive_name() {
    device=$(df -P "$model" 2>/dev/null | awk 'NR == 2 { print $1 }')
    type=$(awk -v d="$device" '$1 == d { print $3; exit }' "$root/proc/mounts" 2>/dev/null || :)
    node=${device##*/}
    sys=$(readlink -f "$root/sys/class/block/$node" 2>/dev/null || :)
    # Of a partition, the whole drive.
    if [ -n "$sys" ] && [ -e "$sys/partition" ]; then
        sys=${sys%/*}
    fi
    what=${device:-not known}
    if [ -r "$sys/device/model" ]; then
        what="$(sed 's/ *$//' "$sys/device/model") ($what)"
    fi
    # A virtual drive calls itself rotating, whatever is behind it.
    case $node in
    vd* | xvd*) what="$what, virtual" ;;
    *)
        if [ "$(cat "$sys/queue/rotational" 2>/dev/null)" = 1 ]; then
            what="$what, rotating"
        fi
        ;;
    esac
    echo "$what${type:+, $type}"
}

{
    echo "cpu=$(cpu_name)"
    echo "cpus=$(nproc 2>/dev/null || echo 'not known')"
    echo "memory=$(memory_gib)"
    echo "drive=$(drive_name)"
    echo "system=$(uname -srm)"
    echo "date=$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    echo "load=$(cut -d ' ' -f 1-3 "$root/proc/loadavg" 2>/dev/null || echo 'not known')"
} >"$dir/machine.txt"
known() { # NAME
    sed -n "s/^$1=//p" "$dir/machine.txt"
}

# ---- The measurements ----

echo "bench-report: the drive" >&2
# A model that is in memory, or tiny, has no drive to measure; its speed is still worth a table.
if ! "$sluice" iobench "$model" --seconds "$seconds" --in-flight 1,2,4,8 --json >"$dir/iobench.json"; then
    : >"$dir/iobench.json"
fi

: >"$dir/warnings.txt"
k=1 wanted=$runs longest_cs=0
while [ "$k" -le "$runs" ]; do
    sensors_clock
    begin_cs=$clock_cs
    if [ "$k" -gt 1 ] && [ $((begin_cs + longest_cs - start_cs)) -gt $((minutes * 6000)) ]; then
        runs=$((k - 1))
        echo "$runs of $wanted runs: another one would not have ended within $minutes minutes (-m)" >>"$dir/warnings.txt"
        break
    fi
    echo "bench-report: run $k of $runs" >&2
    if ! "$here/bench-run.sh" "$tokens" "$model" "$dir/run-$k.csv" "$dir/run-$k.metrics" "$@" --json \
        >"$dir/run-$k.out" 2>"$dir/run-$k.log"; then
        tail -n 5 "$dir/run-$k.log" >&2
        exit 1
    fi
    grep -v '^bench-run: ' "$dir/run-$k.out" >"$dir/result-$k.json"
    grep '^bench-run: ' "$dir/run-$k.out" >"$dir/run-$k.extremes"
    rm "$dir/run-$k.out"
    awk '/^  "warnings": \[$/ { on = 1; next } on && /^  \]/ { exit } on { sub(/^ *"/, ""); sub(/",?$/, ""); print }' \
        "$dir/result-$k.json" >>"$dir/warnings.txt"
    sensors_clock
    if [ $((clock_cs - begin_cs)) -gt "$longest_cs" ]; then longest_cs=$((clock_cs - begin_cs)); fi
    k=$((k + 1))
done

# ---- The tables ----

# Median, and the range where there are several runs, of a member of the results, times a factor. "-": not measured.
over_runs() { # NAME FORMAT FACTOR
    k=1
    while [ "$k" -le "$runs" ]; do
        member "$dir/result-$k.json" "$1"
        k=$((k + 1))
    done | awk -v form="$2" -v factor="$3" '
        $1 != "null" && $1 != "" { v[++n] = $1 * factor }
        END {
            if (n == 0) { print "-"; exit }
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
            m = n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
            text = sprintf(form, m)
            least = sprintf(form, v[1]); most = sprintf(form, v[n])
            print least == most ? text : text " (" least " to " most ")"
        }'
}
mib_of() { # NAME
    member "$dir/result-1.json" "$1" | awk '{ x = $1 / 1048576; printf x < 100 ? "%.1f MiB\n" : "%.0f MiB\n", x }'
}
# The best direct row of iobench, else the best of all, with what speaks against it.
drive_rate() {
    awk '
        function value(line) { sub(/^[^:]*: */, "", line); sub(/,$/, "", line); gsub(/"/, "", line); return line }
        /^  "rows"/ { on = 1 }
        /^  "flat"/ { on = 0 }
        on && /"engine"/ { engine = value($0) }
        on && /"direct"/ { direct = value($0) == "true" }
        on && /"in_flight"/ { flight = value($0) }
        on && /"gb_s"/ { rate = value($0) + 0 }
        on && /"doubt"/ {
            if (direct > best_direct || (direct == best_direct && rate > best)) {
                best = rate; best_direct = direct; doubt = value($0)
                text = sprintf("%.3f GB/s (%s, %s, %s in flight)", rate, direct ? "direct" : "buffered", engine, flight)
            }
        }
        END { print text == "" ? "not known" : text (doubt == "null" ? "" : "; " doubt) }' "$dir/iobench.json"
}
yes_no() {
    if [ "$1" = true ]; then echo yes; else echo no; fi
}

r=$dir/result-1.json
changed=$(member "$r" changed)
cat <<END
| machine | |
| --- | --- |
| CPU | $(known cpu), $(known cpus) usable, $(member "$r" cpu_level) |
| memory | $(known memory) |
| drive | $(known drive) |
| drive, measured | $(drive_rate)$(member "$dir/iobench.json" read_bytes_mean | awk '{ printf ", reads of %.3f MiB", $1 / 1048576 }') |
| memory, copied by one thread | $(member "$dir/iobench.json" copy_gb_s | awk '{ printf "%.1f GB/s", $1; ok = 1 } END { if (!ok) print "not known" }') |
| system | $(known system), load $(known load) before |
| date, version | $(known date), sluice $(member "$r" version) |

| protocol $(member "$r" protocol), $runs runs of $tokens tokens | |
| --- | --- |
| model | $(member "$r" arch) $(member "$r" model_name), $(mib_of file_bytes), experts $(mib_of expert_bytes), $(mib_of token_expert_bytes) per token |
| run | $(if [ "$(member "$r" streamed)" = true ]; then echo "streamed, $(member "$r" io_engine), $(member "$r" io_threads) reads in flight, o_direct $(yes_no "$(member "$r" o_direct)"), overlap $(yes_no "$(member "$r" overlap)"), cache $(mib_of cache_bytes)"; else echo resident; fi), $(member "$r" threads) threads, dense $(member "$r" dense_weights), ubatch $(member "$r" ubatch) |
| changed options | ${changed:-none} |
| decode tok/s | $(over_runs tok_s %.2f 1) |
| ms/token: total, compute, waiting for the drive | $(over_runs s_per_token %.2f 1000), $(over_runs compute_s %.2f 1000), $(over_runs stall_s %.2f 1000) |
| ms/token: p5, median, p95 | $(over_runs p5_s %.2f 1000), $(over_runs median_s %.2f 1000), $(over_runs p95_s %.2f 1000) |
| prompt tok/s, first token s | $(over_runs prompt_tok_s %.1f 1), $(over_runs ttft_s %.2f 1) |
| hit %, MiB read per token, MiB/s | $(over_runs hit_pct %.1f 1), $(over_runs mib_per_token %.1f 1), $(over_runs read_mib_s %.0f 1) |
| page faults from the drive per token | $(over_runs majflt %.1f 1) |
| peak memory MiB | $(over_runs rss_peak_mib %.0f 1) |
| ids that repeat, % | $(over_runs repeat_pct %.0f 1) |
END
if [ -s "$dir/warnings.txt" ]; then
    echo
    sort -u "$dir/warnings.txt" | sed 's/^/Warning: /'
fi

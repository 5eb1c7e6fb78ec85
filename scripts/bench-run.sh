#!/bin/sh
# One run of the protocol (sluice bench), while memory, heat and clock limits are recorded.
# usage: scripts/bench-run.sh N MODEL CSV METRICS [options of sluice bench]
#   N        tokens to generate
#   CSV      gets a row per token (docs/telemetry.md)
#   METRICS  gets a row per second, columns as in docs/benchmark-method.md; empty where the machine has no such sensor
# The result goes to standard output, then a line with the extremes. The exit status is sluice's.
# Environment: SLUICE, the program; BENCH_INTERVAL, seconds between samples (1); BENCH_ROOT, a folder with other proc
# and sys (for tests). Plain POSIX sh, so that it works in an Android shell too.
set -u
here=${0%/*}
[ "$here" != "$0" ] || here=.
# shellcheck source=scripts/bench-sensors.sh
. "$here/bench-sensors.sh"

if [ $# -lt 4 ]; then
    echo "usage: ${0##*/} N MODEL CSV METRICS [options of sluice bench]" >&2
    exit 2
fi
case $1 in
'' | *[!0-9]*)
    echo "${0##*/}: '$1' is no number of tokens" >&2
    exit 2
    ;;
esac
n=$1 model=$2 csv=$3 metrics=$4
shift 4
sensors_find_sluice "$here" || exit 2
sensors_find "${BENCH_ROOT:-}"
if ! echo "seconds,rss_mib,mem_available_mib,temp_c,max_khz,psi_some_avg10" >"$metrics"; then
    exit 1
fi

peak='' floor='' hottest='' slowest='' # KiB, KiB, tenths of a degree, kHz

# One row, and the extremes so far.
sample() {
    sensors_clock
    seconds=$((clock_cs - start_cs))
    sensors_rss "$pid"
    [ "$rss_kib" != 0 ] || rss_kib='' # it has only begun
    sensors_read
    sensors_mib "$rss_kib"
    row=$((seconds / 100)).$((seconds / 10 % 10))$((seconds % 10)),$mib
    sensors_mib "$available_kib"
    sensors_tenths "$temp_dc"
    echo "$row,$mib,$tenths,$max_khz,$psi" >>"$metrics"
    if [ "${rss_kib:-0}" -gt "${peak:-0}" ]; then peak=$rss_kib; fi
    if [ "${temp_dc:-0}" -gt "${hottest:-0}" ]; then hottest=$temp_dc; fi
    if [ -n "$available_kib" ] && [ "$available_kib" -lt "${floor:-2147483647}" ]; then floor=$available_kib; fi
    if [ -n "$max_khz" ] && [ "$max_khz" -lt "${slowest:-2147483647}" ]; then slowest=$max_khz; fi
}

# sluice ends its token and reports; shells start background jobs deaf to INT, so TERM is the one that arrives.
trap 'kill -TERM "$pid" 2>/dev/null' INT TERM HUP

sensors_clock
start_cs=$clock_cs
"$sluice" bench "$model" -n "$n" --csv "$csv" "$@" &
pid=$!
while kill -0 "$pid" 2>/dev/null; do
    sample
    sleep "${BENCH_INTERVAL:-1}"
done
wait "$pid"
rc=$?

show() { # WHAT VALUE UNIT
    if [ -n "$2" ]; then
        echo "$1 $2 $3"
    else
        echo "$1 not known"
    fi
}
sensors_mib "$peak"
line="bench-run: $(show 'peak RSS' "$mib" MiB)"
sensors_mib "$floor"
line="$line, $(show 'least MemAvailable' "$mib" MiB)"
sensors_tenths "$hottest"
echo "$line, $(show 'hottest' "$tenths" C), $(show 'lowest clock limit' "$slowest" kHz)"
exit "$rc"

# bench-sensors.sh: what the system says about heat, clock limits and memory, for scripts that measure: read it in
# with `.`. Plain POSIX sh without other programs, so that it works in an Android shell and costs a running
# measurement nothing. Integers stay below 2^31: some shells have no larger ones.
#
#   sensors_find ROOT    look for the sensors below ROOT ("" is the system itself), once
#   sensors_read         set the variables below; empty where the machine has none
#   sensors_rss PID      set rss_kib: resident memory of a process
#   sensors_clock        set clock_cs: hundredths of a second of a clock that never goes back

# shellcheck shell=sh disable=SC2034 # the variables are the callers'

# Of zones that measure a CPU, by what vendors call them. A cpu-hw-trip zone holds the temperature at which the
# hardware throttles, not one that was measured.
sensors_is_cpu_zone() {
    case $1 in
    *cpu-hw-trip* | *gpu* | *GPU*) return 1 ;;
    *cpu* | *CPU* | x86_pkg_temp | soc* | BIG | MID | LITTLE) return 0 ;;
    esac
    return 1
}

sensors_find() {
    sensors_root=$1
    sensors_n_temps=0
    for sensors_zone in "$1"/sys/class/thermal/thermal_zone*; do
        sensors_type=
        { read -r sensors_type <"$sensors_zone/type"; } 2>/dev/null || :
        if sensors_is_cpu_zone "$sensors_type"; then
            sensors_add_temp "$sensors_zone/temp"
        fi
    done
    # Desktops often have the CPU's sensor here alone.
    for sensors_zone in "$1"/sys/class/hwmon/hwmon*; do
        sensors_type=
        { read -r sensors_type <"$sensors_zone/name"; } 2>/dev/null || :
        case $sensors_type in
        k10temp | zenpower | coretemp | cpu_thermal)
            for sensors_file in "$sensors_zone"/temp*_input; do
                sensors_add_temp "$sensors_file"
            done
            ;;
        esac
    done
}

# Names of sensors in variables of their own: a path may hold anything, and sh has no lists.
sensors_add_temp() {
    if [ -r "$1" ]; then
        sensors_n_temps=$((sensors_n_temps + 1))
        eval "sensors_temp_$sensors_n_temps=\$1"
    fi
}

# The first line of a file in sensors_line if it is a whole number, else fail.
sensors_read_int() {
    sensors_line=
    { read -r sensors_line <"$1"; } 2>/dev/null || [ -n "$sensors_line" ] || return 1
    case ${sensors_line#-} in
    '' | *[!0-9]* | ??????????*) return 1 ;;
    esac
}

# temp_dc: the hottest CPU sensor in tenths of a degree Celsius. Drivers give thousandths, tenths or degrees; what no
# chip has while it computes (sensors that are switched off say 0 or worse) is passed over.
sensors_read_temp() {
    temp_dc='' sensors_i=0
    while [ "$sensors_i" -lt "$sensors_n_temps" ]; do
        sensors_i=$((sensors_i + 1))
        eval "sensors_file=\$sensors_temp_$sensors_i"
        sensors_read_int "$sensors_file" || continue
        if [ "$sensors_line" -ge 2000 ]; then
            sensors_line=$((sensors_line / 100))
        elif [ "$sensors_line" -lt 150 ]; then
            sensors_line=$((sensors_line * 10))
        fi
        if [ "$sensors_line" -le 0 ] || [ "$sensors_line" -gt 1500 ]; then
            continue
        fi
        if [ -z "$temp_dc" ] || [ "$sensors_line" -gt "$temp_dc" ]; then
            temp_dc=$sensors_line
        fi
    done
}

# max_khz: the highest scaling_max_freq, that of the fastest cores; heat and power savers lower it.
sensors_read_khz() {
    max_khz=
    for sensors_file in "$sensors_root"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_max_freq; do
        sensors_read_int "$sensors_file" || continue
        if [ -z "$max_khz" ] || [ "$sensors_line" -gt "$max_khz" ]; then
            max_khz=$sensors_line
        fi
    done
}

# available_kib: MemAvailable.
sensors_read_available() {
    available_kib=
    [ -r "$sensors_root/proc/meminfo" ] || return 0
    while read -r sensors_key sensors_value sensors_unit; do
        if [ "$sensors_key" = MemAvailable: ]; then
            available_kib=$sensors_value
            break
        fi
    done <"$sensors_root/proc/meminfo"
    case $available_kib in
    *[!0-9]* | ??????????*) available_kib= ;;
    esac
}

# psi: the share of the last ten seconds, in per cent, in which some task waited for memory.
sensors_read_psi() {
    psi=
    [ -r "$sensors_root/proc/pressure/memory" ] || return 0
    while read -r sensors_key sensors_value sensors_unit; do
        if [ "$sensors_key" = some ]; then
            psi=${sensors_value#avg10=}
            break
        fi
    done 2>/dev/null <"$sensors_root/proc/pressure/memory"
    case $psi in
    *[!0-9.]*) psi= ;;
    esac
}

sensors_read() {
    sensors_read_temp
    sensors_read_khz
    sensors_read_available
    sensors_read_psi
}

sensors_rss() {
    rss_kib=
    [ -r "$sensors_root/proc/$1/status" ] || return 0
    while read -r sensors_key sensors_value sensors_unit; do
        if [ "$sensors_key" = VmRSS: ]; then
            rss_kib=$sensors_value
            break
        fi
    done 2>/dev/null <"$sensors_root/proc/$1/status"
}

# The system's own clock, whatever the root. Leading zeros would make a number octal.
sensors_clock() {
    sensors_line=
    { read -r sensors_line sensors_value </proc/uptime; } 2>/dev/null || :
    case $sensors_line in
    *.[0-9][0-9])
        sensors_value=1${sensors_line#*.}
        clock_cs=$((${sensors_line%.*} * 100 + sensors_value - 100))
        ;;
    *) clock_cs=$(($(date +%s) % 20000000 * 100)) ;;
    esac
}

# 123 -> 12.3; empty stays empty.
sensors_tenths() {
    tenths=$1
    if [ -n "$1" ]; then
        tenths=$(($1 / 10)).$(($1 % 10))
    fi
}

# KiB -> MiB, rounded down; empty stays empty.
sensors_mib() {
    mib=$1
    if [ -n "$1" ]; then
        mib=$(($1 / 1024))
    fi
}

# Where sluice is: $SLUICE, beside this script (a phone has no source tree), in the build folder, in the PATH.
sensors_find_sluice() {
    for sluice in "${SLUICE:-}" "$1/sluice" "$1/../build/cli/sluice"; do
        if [ -n "$sluice" ] && [ -x "$sluice" ]; then
            return 0
        fi
    done
    sluice=sluice
    command -v sluice >/dev/null && return 0
    echo "sluice is not built and not in the PATH: run scripts/build.sh, or set SLUICE to the program" >&2
    return 1
}

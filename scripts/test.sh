#!/bin/sh
# Set up, build, and run every fast test. The last line is CTest's.
# usage: scripts/test.sh [options of ctest]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)

"$root/scripts/setup.sh"
"$root/scripts/build.sh"
cd "$root"
exec ctest --preset release -j "$(nproc)" "$@"

#!/bin/sh
# Build the release preset in build/. Arguments go to cmake's configure step.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
mkdir -p build
if ! cmake --preset release "$@" >build/configure.log 2>&1; then
    cat build/configure.log >&2
    exit 1
fi
cmake --build --preset release

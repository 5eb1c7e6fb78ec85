#!/bin/sh
# Set up, build, and tell a tale: the model that the repository ships, its experts streamed from
# the drive, the text as it comes, then the report.
# usage: scripts/demo.sh [options of sluice run]   they are added to the demo's own
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)

"$root/scripts/setup.sh"
"$root/scripts/build.sh"

prompt='Tell me the story of the Fox and the Crow.'
echo
echo "> $prompt"
echo
exec "$root/build/cli/sluice" run --moe-stream -m "$root/models/storyteller.gguf" \
    --chatml -p "$prompt" -n 200 --temp 0.6 --top-p 0.9 --seed 3 "$@"

#!/usr/bin/env bash
# Runs the fuzz target <name> on <runs> inputs that begin with corpus/<name>; the tree stays as it is.
# Usage: run.sh <name> <program> <runs> [libFuzzer option...]
# An input that it fails on is left in the current folder; `<program> <file>` runs it again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
name=$1 program=$2 runs=$3
shift 3
options=("$@")
if [[ -f $here/$name.dict ]]; then options+=(-dict="$here/$name.dict"); fi
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
"$program" -runs="$runs" -seed=1 -max_len=20000 -timeout=10 -malloc_limit_mb=256 \
  -rss_limit_mb=2048 -print_final_stats=1 "${options[@]}" "$found" "$here/corpus/$name"

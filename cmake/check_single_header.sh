#!/usr/bin/env bash
# Example 00, compiled with the single header alone, prints what it prints with all headers.
# Usage: check_single_header.sh COMPILER EXAMPLE_00
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

mkdir "$work/shardwise"
cmake/single_header.py >"$work/shardwise/shardwise.hpp"
[[ $(grep -c 'include "' "$work/shardwise/shardwise.hpp") -eq 0 ]] || { echo 'it includes other headers of ours' && exit 1; }
[[ -z $(grep '^#include' "$work/shardwise/shardwise.hpp" | sort | uniq -d) ]] || { echo 'it includes a header twice' && exit 1; }
"$1" -std=c++20 -O0 -Wall -Wextra -Wpedantic -Wconversion -Werror -I "$work" examples/00_first_model.cpp -pthread -o "$work/program"
"$2" >"$work/expected"
"$work/program" >"$work/printed"
[[ -s $work/expected ]] || { echo "$2 prints nothing" && exit 1; }
diff "$work/expected" "$work/printed"

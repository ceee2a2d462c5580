#!/usr/bin/env bash
# A step on unchecked ranks has no code of the checks that are switched off, and less code in all, even
# where nothing is optimised.
# Usage: off_costs_nothing.sh COMPILER    in a folder to build in
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
messages=("all axes but batch must be equal" "of the model's communicator"
  "a redistribution changes the layout alone" "backward without a forward before it"
  "they must be equal")
for define in CHECKED UNCHECKED; do
  "$1" -std=c++20 -O0 -D"$define" -I "$here/../../include" -c "$here/step.cpp" -o "$define.o"
done
code() { size "$1" | awk 'NR == 2 { print $1 }'; }  # bytes of instructions and constants

failed=0
for message in "${messages[@]}"; do
  grep -q "$message" CHECKED.o || { echo "checked, and lacks: $message" && failed=1; }
  ! grep -q "$message" UNCHECKED.o || { echo "unchecked, and has: $message" && failed=1; }
done
echo "a step of $(code CHECKED.o) bytes checked, $(code UNCHECKED.o) bytes unchecked"
[[ $failed -eq 0 && $(code UNCHECKED.o) -lt $(code CHECKED.o) ]]

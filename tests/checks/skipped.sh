#!/usr/bin/env bash
# A test program ends with 77 if all of its cases were left out, with 0 if one of them ran, and with 1
# if no case fits its filter.
# Usage: skipped.sh UNIT_BACKEND_ONEDNN
set -euo pipefail
export ONEDNN_MAX_CPU_ISA=AVX2  # without products in bf16

expect() {  # expect <program> <status> <line> <cases>
  local status=0 printed
  printed=$("$1" --test-case="$4" 2>&1) || status=$?
  if [[ $status -ne $2 || $'\n'$printed != *$'\n'"$3"* ]]; then
    echo "$4: status $status where $2 was expected, or no line '$3'"
    echo "$printed"
    exit 1
  fi
}

expect "$1" 77 'skipped: oneDNN in bf16' "integer-valued products are exact<*bf16>"
expect "$1" 0 'skipped: oneDNN in bf16' "integer-valued products are exact<*"
expect "$1" 1 'no test case fits' "a case that nobody wrote"

#!/usr/bin/env bash
# A test program ends with 77 if all of its cases were left out, and with 0 if one of them ran.
# Usage: skipped.sh UNIT_BACKEND_ONEDNN
set -euo pipefail
export ONEDNN_MAX_CPU_ISA=AVX2  # without products in bf16

expect() {  # expect <program> <status> <cases>
  local status=0 printed
  printed=$("$1" --test-case="$3") || status=$?
  if [[ $status -ne $2 || $printed != *$'\nskipped: oneDNN in bf16'* ]]; then
    echo "$3: status $status where $2 was expected, or no line 'skipped: oneDNN in bf16'"
    echo "$printed"
    exit 1
  fi
}

expect "$1" 77 "integer-valued products are exact<*bf16>"
expect "$1" 0 "integer-valued products are exact<*"

#!/usr/bin/env bash
# No array of classes begins with {}: g++ 12 then fills only a part of it if a constant expression
# of the same source has changed one element of another such array. Without {} each element has its
# own initial values.
# Usage: check_arrays.sh [root]    Prints each such array; exit code 1 if there is one.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

enums='SplitKind|MeshAxis|Step'  # and a pointer: their {} is zero, and what is needed
class='(detail::)?[A-Z][a-z][A-Za-z]*(<[^;]*>)?'
found=$(grep -rnE "(array<$class, [^;]*>|^ *$class) [a-z_]+(\[[^]]+\])? ?\{\};" include/shardwise |
  grep -E 'array<|\]' | grep -vE "(array<| )($enums)[, ]" || true)
echo "arrays of classes that begin with {}: $(grep -c . <<<"$found" || true)"
[[ -z $found ]] || { echo "$found" && exit 1; }

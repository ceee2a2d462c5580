#!/usr/bin/env bash
# Every header, included first, refuses an older standard with our sentence ahead of any other error.
# Usage: older_standard.sh COMPILER    Prints each header that does not; exit code 1 if any did.
set -uo pipefail
cd "$(dirname "$0")/../../include"
count=0 wrong=0
while IFS= read -r header; do
  # What needs a library that is not installed fails for that reason first.
  said=$("$1" -std=c++17 -fsyntax-only -Wfatal-errors -I. -x c++ "shardwise/$header" 2>&1 |
    grep -m1 -E 'error: ')
  [[ $said != *"file not found"* && $said != *"No such file"* ]] || continue
  count=$((count + 1))
  [[ $said != *"shardwise needs C++20"* ]] || continue
  echo "$header: ${said:-no error}"
  wrong=$((wrong + 1))
done < <(find shardwise -name '*.hpp' -printf '%P\n' | sort)
echo "older standard: $count headers, $wrong without our sentence first"
[[ $count -gt 100 && $wrong -eq 0 ]]

#!/usr/bin/env bash
# The README shows examples/00_first_model.cpp; this fails if the two have come apart.
set -euo pipefail
cd "$(dirname "$0")/.."

shown=$(sed -n '/^```cpp$/,/^```$/p' README.md | sed '1d;/^```$/,$d')
real=$(sed -n '/^\/\/ \[readme\]$/,/^\/\/ \[readme\]$/p' examples/00_first_model.cpp | sed '1d;$d')
if [[ $shown != "$real" ]]; then
  diff <(echo "$real") <(echo "$shown") || true
  echo "check_readme: the first C++ block of README.md is not the code of" \
    "examples/00_first_model.cpp between its [readme] lines; copy it over" >&2
  exit 1
fi

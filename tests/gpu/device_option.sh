#!/bin/sh
# What an example that knows GPUs says to --device where none is to be seen: `cuda` is an error, and
# `auto` is the host. Ends with 77 where there is a GPU, on which ./dev gpu test runs it.
# Usage: device_option.sh PROGRAM ARGUMENT...
program=$1
shift
learnt='^(epoch 1 |loss of step 8 |step 18 )'
out=$(mktemp)
trap 'rm "$out"' EXIT

if "$program" "$@" -s 2 --device cuda >"$out" 2>&1; then
  echo 'skipped: there is a GPU'
  exit 77
fi
cat "$out"
[ "$(grep -c 'a device was chosen, but not every rank has one; rank [01] sees 0: no NVIDIA GPU' "$out")" \
  -eq 1 ] || exit 1
if grep -E "$learnt" "$out"; then exit 1; fi

"$program" "$@" -s 2 --device auto >"$out" || exit 1
grep -E "$learnt" "$out" || exit 1
if "$program" "$@" --device gpu 2>"$out"; then exit 1; fi
grep -e '--device: gpu not in {auto,cpu,cuda}' "$out"

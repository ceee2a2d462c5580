#!/bin/sh
# example.sh PROGRAM LAUNCHER ON_THREADS ARGUMENT...: an example on processes prints the losses that
# it prints on threads, to the last digit, and refuses a number of ranks that was not started.
program=$1
launcher=$2
on_threads=$3
shift 3
arguments=$*
out=$(mktemp)
trap 'rm "$out"' EXIT

losses() { "$@" $arguments </dev/null | sed -n 's/^\(epoch [0-9]* *loss [0-9.]* *\(test accuracy\|error\) [0-9.]*\).*/\1/p'; }

for ranks in 1 2 3; do
  threads=$(losses "$on_threads" -s "$ranks")
  processes=$(losses "$launcher" -n "$ranks" "$program" -s "$ranks")
  echo "$ranks ranks:"
  echo "$processes"
  [ -n "$threads" ] && [ "$threads" = "$processes" ] || { echo "FAILED: on threads: $threads"; exit 1; }
done

alone=$(losses "$program")
[ "$alone" = "$(losses "$on_threads")" ] || { echo "FAILED: alone: $alone"; exit 1; }

if timeout 10 "$launcher" -n 2 "$program" $arguments -s 3 >"$out" 2>&1 </dev/null; then
  echo "FAILED: 3 ranks on 2 processes were taken"
  exit 1
fi
grep '3 ranks were asked for, but 2 processes were started' "$out" || { cat "$out"; exit 1; }

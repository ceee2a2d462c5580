#!/bin/sh
# same_output.sh PROGRAM LAUNCHER RANKS ON_THREADS ARGUMENT...: so many processes print what an example
# prints on threads, but for lines of tokens/s.
program=$1
launcher=$2
ranks=$3
on_threads=$4
shift 4
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

"$on_threads" "$@" </dev/null >"$work/all" && grep -v tokens/s "$work/all" >"$work/threads" || exit 1
"$launcher" -n "$ranks" "$program" "$@" </dev/null >"$work/all" || exit 1
grep -v tokens/s "$work/all" >"$work/processes"
cat "$work/processes"
diff "$work/threads" "$work/processes"

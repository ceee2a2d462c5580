#!/bin/sh
# On processes the split tool gives the rows that it gives on threads, and jobs on other numbers of
# ranks go on in the same file; a number of ranks that was not started is refused.
# Usage: split_mpi.rows.sh PROGRAM LAUNCHER ON_THREADS
program=$1
launcher=$2
on_threads=$3
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
cd "$work" || exit 1

fail() {
  echo "FAILED: $*"
  cat output
  exit 1
}

sweep="-s 3x5x2 -t double -b reference --rounds 1"
for ranks in 1 3; do
  "$launcher" -n $ranks "$program" $sweep -o processes.csv --resume >output 2>&1 </dev/null ||
    fail "$ranks processes"
done
"$on_threads" $sweep -r 1,3 -o threads.csv >output 2>&1 || fail 'threads'

# All but times: what was measured, and bytes as planned and as counted.
known() { cut -d , -f 1-8,10,31-34 "$1"; }
known processes.csv >processes
known threads.csv | cmp processes - || fail 'rows of processes and of threads differ'
[ "$(grep -c ',processes,' processes.csv)" -eq 12 ] || fail 'not 12 rows of processes'

if timeout 20 "$launcher" -n 2 "$program" $sweep -r 3 >output 2>&1 </dev/null; then
  fail '3 ranks on 2 processes were taken'
fi
grep -q -- '--ranks does not ask for the 2 processes that were started' output || fail 'no message'

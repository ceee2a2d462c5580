#!/bin/sh
# scale.sh PROGRAM LAUNCHER: 64 processes that SimGrid's SMPI simulates train as one does, to ten
# digits, and `describe` tells when groups along `tensor` span machines. SMPI simulates hosts with
# names of their own; the platform gives their wires.
program=$1
launcher=$2
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

cat >"$work/platform.xml" <<'XML'
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="hosts" prefix="node" suffix="" radical="0-15" speed="1Gf" bw="1GBps" lat="5us"/>
</platform>
XML

run() { # run RANKS RANKS_PER_HOST MESH: the output is in $work/out
  i=0
  while [ "$i" -lt "$1" ]; do
    echo "node$((i / $2))"
    i=$((i + 1))
  done >"$work/hosts"
  timeout 100 "$launcher" -np "$1" -hostfile "$work/hosts" -platform "$work/platform.xml" \
    --cfg=smpi/simulate-computation:no --cfg=smpi/coll-selector:ompi --log=root.thresh:critical \
    "$program" "$3" >"$work/out" 2>&1 </dev/null || fail "$1 ranks on $3 ended with status $?"
}

fail() {
  cat "$work/out"
  echo "FAILED: $*"
  exit 1
}

expect() { grep -q -- "$1" "$work/out" || fail "no line with: $1"; }

run 1 1 tensor=1
alone=$(grep loss "$work/out")
[ "$(echo "$alone" | wc -l)" = 2 ] || fail "one rank did not train two steps"

run 64 4 data=16,tensor=4
[ "$(grep loss "$work/out")" = "$alone" ] || fail "the losses of one rank are: $alone"
expect '^mesh data=16,tensor=4: 64 ranks on 16 machines$'
expect '^data 15: node15 60 61 62 63$'
grep -q warning "$work/out" && fail "a warning, though each group is on one machine"

run 4 1 data=2,tensor=2
expect '^data 1: node2 2, node3 3$'
expect '^warning: 2 of 2 groups along tensor span machines'

#!/bin/sh
# scale.sh PROGRAM LAUNCHER [times]: 64 processes that SimGrid's SMPI simulates train as one does, to
# ten digits, `describe` tells when groups along `tensor` span machines, and collectives and steps
# take as long as predicted. SMPI simulates hosts with names of their own; the platform gives their
# wires. With `times`, only that, on 4, 16 and 64 ranks.
program=$1
launcher=$2
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

cat >"$work/platform.xml" <<'XML'
<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="hosts" prefix="node" suffix="" radical="0-63" speed="1Gf" bw="1GBps" lat="5us"/>
</platform>
XML

# The same speed for messages of any length and direction, and no time for computation.
settings="--cfg=smpi/simulate-computation:no --cfg=smpi/bw-factor:0:1
  --cfg=smpi/lat-factor:0:1 --cfg=network/crosstraffic:0 --cfg=smpi/coll-selector:ompi"

# Seconds of the simulation from one look for a message to the next. A rank waits by looking, so with
# shorter ones a simulation takes up to three times as long.
poll=1e-5

run() { # run RANKS RANKS_PER_HOST MESH [times]: the output is in $work/out
  i=0
  while [ "$i" -lt "$1" ]; do
    echo "node$((i / $2))"
    i=$((i + 1))
  done >"$work/hosts"
  timeout 200 "$launcher" -np "$1" -hostfile "$work/hosts" -platform "$work/platform.xml" $settings \
    --cfg=smpi/test:$poll --log=root.thresh:critical "$program" "$3" $4 >"$work/out" 2>&1 </dev/null ||
    fail "$1 ranks on $3 ended with status $?"
}

fail() {
  cat "$work/out"
  echo "FAILED: $*"
  exit 1
}

expect() { grep -q -- "$1" "$work/out" || fail "no line with: $1"; }

compare() { # compare RANKS MESH: each of the nine predictions differs by at most 15 %
  poll=1e-8
  run "$1" 1 "$2" times
  cat "$work/out"
  [ "$(grep -c '^| ' "$work/out")" = 9 ] || fail "not nine predictions"
  awk -F'|' '/^\| / && ($7 + 0 > 15 || $7 + 0 < -15) { bad = 1 } END { exit bad }' "$work/out" ||
    fail "a prediction differs by more than 15 %"
}

if [ "$3" = times ]; then
  for ranks in 4 16 64; do compare "$ranks" "data=$ranks"; done
  compare 16 data=4,tensor=4
  exit 0
fi

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

compare 4 data=4

#!/bin/sh
# Example 11 prints the same losses on all meshes of 8 ranks, with and without shares of the moments,
# and learns. The mesh is that of `--mesh` or else of SHARDWISE_MESH; one of other than 8 ranks is refused.
# Usage: 11_mesh.losses.sh PROGRAM
program=$1
failed=0

# losses PARAMETERS MOMENTS ARGUMENT...: of a run whose rank 0 holds so many of each, which shows its mesh.
losses() {
  rank_0="rank 0 holds $1 parameters, and the moments of $2"
  shift 2
  out=$("$program" "$@")
  echo "$out" | grep -qx "$rank_0" && echo "$out" | grep '^epoch'
}

compare() {  # compare PARAMETERS MOMENTS ARGUMENT...
  found=$(losses "$@")
  [ "$found" = "$expected" ] && return
  echo "FAILED, other losses or sizes: $*: $found"
  failed=1
}

expected=$(losses 51 51 --mesh tensor=8)
echo "$expected"
echo "$expected" | awk '{ last = $4 } END { exit NR != 4 || last > 0.2 }' || failed=1
compare 195 195 --mesh replica=2,data=2,tensor=2
compare 387 387 --mesh replica=8
compare 195 98 --mesh replica=2,data=2,tensor=2 --state-over-data
compare 387 49 --mesh data=8 --state-over-data
export SHARDWISE_MESH=data=2,tensor=4
compare 99 99
compare 195 195 --mesh 'data=4,tensor=*'

if "$program" --mesh data=3 2>&1; then failed=1; fi
exit $failed

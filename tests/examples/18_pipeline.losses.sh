#!/bin/sh
# Example 18 prints the same losses on all meshes of two stages, and learns; it refuses other stages.
# Usage: 18_pipeline.losses.sh PROGRAM
program=$1

expected=$("$program") || exit 1
echo "$expected"
echo "$expected" | awk '{ last = $4 } END { exit NR != 4 || last > 0.05 }' || exit 1
for mesh in pipeline=2,data=2 pipeline=2,replica=2; do
  found=$("$program" $mesh)
  [ "$found" = "$expected" ] || { echo "FAILED: $mesh: $found"; exit 1; }
done
! "$program" tensor=4

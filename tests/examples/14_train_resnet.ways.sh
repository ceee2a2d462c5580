#!/bin/sh
# Example 14 in both ways at 1, 2 and 3 ranks prints the same losses to 3 in 1000, and learns.
# Usage: 14_train_resnet.ways.sh PROGRAM
program=$1

for way in channels rows; do
  for ranks in 1 2 3; do
    "$program" --way $way --data synthetic -s $ranks -e 2 --samples 320 | sed -n "s/^epoch/$way $ranks epoch/p"
  done
done | awk '
  { print }
  NR <= 2 { loss[$4] = $6 }
  { off = $6 / loss[$4] - 1; if (off > 3e-3 || off < -3e-3 || ($4 == 2 && $6 > 1.9)) failed = 1 }
  END { exit failed || NR != 12 }'

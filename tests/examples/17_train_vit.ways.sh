#!/bin/sh
# Example 17 in its three ways at 1, 2 and 3 ranks prints the same losses to 1 in 1000, and learns.
# Usage: 17_train_vit.ways.sh PROGRAM
program=$1

for way in tensor sequence context; do
  for ranks in 1 2 3; do
    "$program" --way $way --data synthetic -s $ranks -e 2 -b 4 --samples 64 |
      sed -n "s/^epoch/$way $ranks epoch/p"
  done
done | awk '
  { print }
  NR <= 2 { loss[$4] = $6 }
  { off = $6 / loss[$4] - 1; if (off > 1e-3 || off < -1e-3 || ($4 == 2 && $6 > 0.95 * loss[1])) failed = 1 }
  END { exit failed || NR != 18 }'

#!/bin/sh
# Example 14 in both plans at 1, 2 and 3 ranks prints the same losses to 3 in 1000, and learns.
# Usage: 14_train_resnet.plans.sh PROGRAM
program=$1

for plan in channels rows; do
  for ranks in 1 2 3; do
    "$program" --plan $plan --data synthetic -s $ranks -e 2 --samples 320 | sed -n "s/^epoch/$plan $ranks epoch/p"
  done
done | awk '
  { print }
  NR <= 2 { loss[$4] = $6 }
  { off = $6 / loss[$4] - 1; if (off > 3e-3 || off < -3e-3 || ($4 == 2 && $6 > 1.9)) failed = 1 }
  END { exit failed || NR != 12 }'

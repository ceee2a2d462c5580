#!/bin/sh
# Example 13 in its three ways at 1, 2 and 3 ranks prints the same losses to 1 in 1000, and learns.
# Usage: 13_train_gpt.ways.sh PROGRAM
program=$1

for way in tensor sequence context; do
  for ranks in 1 2 3; do
    "$program" --way $way -s $ranks --text /usr/share/common-licenses/Apache-2.0 -b 4 --steps 12 --write 0 |
      sed -n "s/^step/$way $ranks step/p"
  done
done | awk '
  { print }
  NR == 1 { loss = $6 }
  { off = $6 / loss - 1; if (off > 1e-3 || off < -1e-3 || $6 > 4) failed = 1 }
  END { exit failed || NR != 9 }'

#!/bin/sh
# Example 02 tells at least 87 % of the test images right after its 5 epochs at 1 and 4 ranks, and
# its loss in every epoch is within 1e-3 of one rank's.
# Usage: 02_train_mlp.accuracy.sh PROGRAM; ends with 77 where the data set is not installed, and in
# a build with a sanitizer, where five epochs take too long.
[ -d /usr/share/datasets/fashion-mnist ] || exit 77
if grep -q '__[at]san_init' "$1"; then exit 77; fi
for ranks in 1 4; do
  results=$("$1" -s "$ranks") || exit 1
  echo "$results" | sed -n "s/^epoch/ranks $ranks epoch/p"
done | awk '
  { print }
  $2 == 1 { one[$4] = $6 }
  { off = $6 / one[$4] - 1; if (off > 1e-3 || off < -1e-3) failed = 1 }
  $4 == 5 { ends += $9 >= 87 }
  END { exit failed || ends != 2 }'

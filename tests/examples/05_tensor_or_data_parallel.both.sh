#!/usr/bin/env bash
# Example 05 in both ways, also with fewer images in a batch than ranks; it ends with an error itself
# if losses differ, or if a step sends something else than planned.
# Usage: 05_tensor_or_data_parallel.both.sh PROGRAM
set -euo pipefail
program=$1

"$program" --synthetic -s 1 -e 1
"$program" --synthetic -s 8 -b 5 -e 1
for parallel in tensor data; do
  "$program" --synthetic -s 2 --parallel "$parallel" |
    grep "^$parallel-parallel on 2 ranks, epoch 1   test accuracy 9[0-9]"
done

if "$program" --synthetic --parallel pipeline; then
  echo 'a way that does not exist was taken'
  exit 1
fi

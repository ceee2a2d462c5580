#!/bin/sh
# Example 02 trains in every dtype that it offers.
# Usage: 02_train_mlp.dtypes.sh PROGRAM
for dtype in double bf16; do
  echo "== $dtype"
  said=$("$1" --synthetic -s 2 -e 1 --dtype $dtype) || exit 1
  echo "$said"
  echo "$said" | grep -q '^epoch 1   loss [0-9]' || exit 1
done

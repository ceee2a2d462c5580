#!/bin/sh
# Example 02 tells at least 87 % of the test images right after its 5 epochs.
# Usage: 02_train_mlp.accuracy.sh PROGRAM; ends with 77 where the data set is not installed.
[ -d /usr/share/datasets/fashion-mnist ] || exit 77
results=$("$1" -s 2) || exit 1
echo "$results"
echo "$results" | awk '/^epoch 5 / { found = 1; good = $7 >= 87 } END { exit !(found && good) }'

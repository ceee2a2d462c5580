#!/bin/sh
# Example 07 in all three ways at 1, 2 and 3 ranks prints the same losses to four digits and learns;
# it ends with an error itself if a step sends something else than planned. The form of its lines is
# that which `./dev demo` reads. CIFAR-10 comes from files written here, of which ranks may be more than
# there are rows.
# Usage: 07_train_cnn.ways.sh PROGRAM
program=$1
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

for way in gathered alternating spatial; do
  for ranks in 1 2 3; do
    "$program" --way $way --data synthetic -s $ranks -e 1 --samples 320 --counts --log "$work/log" \
      >"$work/out" || exit 1
    [ "$(grep -c '^parameters of each rank' "$work/out")" -eq 1 ] || exit 1
    [ "$(grep -c '^activations of each rank' "$work/out")" -eq 1 ] || exit 1
    grep -Eq "^one step on $ranks rank\(s\) sends [0-9]+ bytes in all:$" "$work/out" || exit 1
    grep -Eq '^epoch 1   loss [0-9.]+   test accuracy [0-9.]+ %   [0-9]+ images/s$' "$work/out" || exit 1
    [ $ranks -eq 1 ] || grep -q 'planned .* counted' "$work/out" || exit 1
    [ "$(grep -c "^$way,$ranks,[0-9]*,loss," "$work/log")" -eq 10 ] || exit 1
    [ "$(grep -c "^$way,$ranks,320,accuracy," "$work/log")" -eq 1 ] || exit 1
    sed -n "s/^epoch/$way $ranks epoch/p" "$work/out"
  done
done | awk '
  { print }
  NR == 1 { loss = $6 }
  { off = $6 / loss - 1; if (off > 1e-4 || off < -1e-4 || $9 < 50) failed = 1 }
  END { exit failed || NR != 9 }' || exit 1

# Five training files of two images each, all of one colour, and a test file of two.
mkdir "$work/cifar"
for file in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
  for label in 3 7; do
    printf "\\$label"
    head -c 3072 /dev/zero | tr '\0' "\\$label"
  done >"$work/cifar/$file.bin"
done
for way in gathered alternating spatial; do
  "$program" --way $way --data cifar10 --data-dir "$work/cifar" -b 5 -s 2 -e 1 |
    grep '^epoch 1' || exit 1
done
"$program" --way spatial --data synthetic -s 14 -b 4 --samples 4 -e 1 | grep '^epoch 1'

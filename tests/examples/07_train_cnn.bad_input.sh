#!/bin/sh
# What example 07 says to bad input.
# Usage: 07_train_cnn.bad_input.sh PROGRAM
program=$1
. "$(dirname "$0")/bad_input.sh"

# Each training file and the test file of CIFAR-10 with two black images of class 0.
make_cifar() {  # make_cifar <folder>
  mkdir "$1"
  for file in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
    head -c 6146 /dev/zero >"$1/$file.bin"
  done
}

refuses_as_all --split --data synthetic
refuses '--way: columns not in {gathered,alternating,spatial}' --way columns
refuses '--data: mnist not in {fashion-mnist,cifar10,synthetic}' --data mnist
refuses '--samples: Value -1 not in range' --data synthetic --samples=-1
refuses 'a batch of 64 samples is never full with 10 samples' \
  --data synthetic -s 3 -b 64 --samples 10
refuses 'a single value for each channel, which has no variance to train with' \
  --data synthetic -s 2 -b 1 --samples 2
refuses 'the log .*nowhere/log cannot be written' \
  --data synthetic -s 2 --samples 64 --log "$work/nowhere/log"

refuses 'data_batch_1.bin: cannot be opened.*cifar-10-batches-bin' \
  -s 3 --data cifar10 --data-dir "$work/nowhere"

make_cifar "$work/good"
"$program" --data cifar10 -s 3 -e 1 -b 5 --data-dir "$work/good" >"$work/stdout" \
  2>"$work/stderr" || complain 'good data were refused: the cases below prove nothing'
refuses '11 training images were asked for, but there are 10' \
  --data cifar10 -s 3 -b 5 --samples 11 --data-dir "$work/good"

if limit_memory; then
  refuses 'no memory for the buffers of 100000 ranks; run fewer' --data synthetic -s 100000
fi

[ "$failures" -eq 0 ]

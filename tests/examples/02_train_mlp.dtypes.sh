#!/bin/sh
# Example 02 trains in every dtype that it offers; in bf16 where the processor has AVX-512, which
# oneDNN needs for it, and elsewhere says so in the library's words.
# Usage: 02_train_mlp.dtypes.sh PROGRAM
train() { # train DTYPE
  echo "== $1"
  "$program" --synthetic -s 2 -e 1 --dtype "$1" 2>&1
}

program=$1
for dtype in double bf16; do
  said=$(train $dtype)
  status=$?
  echo "$said"
  if [ $dtype = bf16 ] && ! grep -q avx512bw /proc/cpuinfo; then
    echo "skipped: training in bf16, because this processor has no AVX-512"
    [ $status -ne 0 ] && echo "$said" | grep -q 'bfloat16 needs AVX-512' || exit 1
  else
    [ $status -eq 0 ] && echo "$said" | grep -q '^epoch 1   loss [0-9]' || exit 1
  fi
done

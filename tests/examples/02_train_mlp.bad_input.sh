#!/bin/sh
# What example 02 says to bad input.
# Usage: 02_train_mlp.bad_input.sh PROGRAM
program=$1
. "$(dirname "$0")/bad_input.sh"

# Two images of 28 by 28 in each part, as plain IDX files; labels as octal bytes.
make_data() {  # make_data <folder> <label> <label>
  mkdir "$1"
  for part in train t10k; do
    {
      printf '\0\0\10\3\0\0\0\2\0\0\0\34\0\0\0\34'
      head -c 1568 /dev/zero
    } >"$1/$part-images-idx3-ubyte"
    printf "\\0\\0\\10\\1\\0\\0\\0\\2\\$2\\$3" >"$1/$part-labels-idx1-ubyte"
  done
}

refuses_as_all --ranks --synthetic
refuses '--dtype: half not in {bf16,double,float}' --dtype half
refuses '--epochs: Value -3 not in range' --synthetic --epochs=-3
refuses 'learning_rate is -1' --synthetic -s 2 --lr=-1
refuses 'learning_rate is nan' --synthetic -s 2 --lr nan
refuses 'Relu\|Linear.*holds a NaN or an infinity' --synthetic -s 3 --lr 1e30

make_data "$work/good" 0 11
"$program" -s 3 -e 1 --data-dir "$work/good" >"$work/stdout" 2>"$work/stderr" ||
  complain 'good data were refused: the cases below prove nothing'

make_data "$work/cut" 0 11
head -c 1000 "$work/good/train-images-idx3-ubyte" >"$work/cut/train-images-idx3-ubyte"
refuses 'train-images-idx3-ubyte.*cut short' -s 3 --data-dir "$work/cut"

make_data "$work/swapped" 0 11
cp "$work/good/train-labels-idx1-ubyte" "$work/swapped/train-images-idx3-ubyte"
refuses 'are images and labels mixed up' -s 3 --data-dir "$work/swapped"

make_data "$work/label" 0 12
refuses 'gives image 1 the label 10; the classes are 0 to 9' -s 3 --data-dir "$work/label"

if limit_memory; then  # wherever it runs out
  refuses 'no memory for the buffers of 100000 ranks; run fewer' --synthetic -s 100000
  refuses 'no memory\|bad_alloc\|could not start\|out_of_memory' --synthetic -s 64
fi

[ "$failures" -eq 0 ]

#!/bin/sh
# Example 16 draws the same tokens at 1, 2, 3 and 8 ranks, others with another seed, and with top_k of 1
# the most likely ones. In bf16 it writes where the processor has AVX-512, which oneDNN needs for it,
# and elsewhere says so in the library's words.
# Usage: 16_generate.sampled.sh PROGRAM
program=$1
folder=$(dirname "$0")/../witness/values/hugging_face/qwen2

texts() {  # texts RANKS ARGUMENT...: the lines with ids
  ranks=$1
  shift
  "$program" --model "$folder" -s "$ranks" --ids 1,5,9 --ids 7 --tokens 20 "$@" | grep -E '^[0-9,]+  [0-9,]+$'
}

drawn='--temperature 0.8 --top-k 5 --top-p 0.95 --seed'
# shellcheck disable=SC2086  # $drawn is several words
{
  first=$(texts 1 $drawn 1)
  echo "$first"
  for ranks in 2 3 8; do
    [ "$(texts $ranks $drawn 1)" = "$first" ] || { echo "other tokens at $ranks ranks" && exit 1; }
  done
  [ "$(texts 3 $drawn 2)" != "$first" ] || { echo "the same tokens with another seed" && exit 1; }
}
likely=$(texts 1)
[ "$likely" != "$first" ] || { echo "the most likely tokens were drawn" && exit 1; }
[ "$(texts 3 --temperature 0.8 --top-k 1)" = "$likely" ] || { echo "top_k of 1 left others" && exit 1; }

said=$("$program" --model "$folder" -s 3 --ids 1,5,9 --tokens 20 --dtype bf16 2>&1)
status=$?
echo "$said"
if grep -q avx512bw /proc/cpuinfo; then
  [ $status -eq 0 ] && echo "$said" | grep -Eq '^1,5,9  [0-9]+(,[0-9]+){19}$' || exit 1
else
  echo "skipped: bf16, because this processor has no AVX-512"
  [ $status -ne 0 ] && echo "$said" | grep -q 'bfloat16 needs AVX-512' || exit 1
fi

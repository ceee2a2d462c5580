#!/bin/sh
# Example 16 writes what transformers wrote with the same models, at 1, 2, 3, 5 and 8 ranks. The files
# continuations.txt are those of tests/witness/make_continuations.py: a prompt and its ids in each line.
# Usage: 16_generate.continuations.sh PROGRAM
program=$1
folders=$(dirname "$0")/../witness/values/hugging_face
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

for family in llama mistral phi3 qwen2 qwen3 gpt2 gpt2_base; do
  expected=$folders/$family/continuations.txt
  [ "$(grep -c . "$expected")" -eq 3 ] || { echo "$expected has no three lines" && exit 1; }
  prompts=$(sed 's/^\([0-9,]*\) .*/--ids \1/' "$expected")
  tokens=$(sed -n '1s/.* //p' "$expected" | tr , '\n' | grep -c .)
  for ranks in 1 2 3 5 8; do
    # shellcheck disable=SC2086  # prompts are words
    "$program" --model "$folders/$family" -s $ranks --tokens "$tokens" $prompts >"$work/out" || exit 1
    sed -n 's/^\([0-9,]*\)  \([0-9,]*\)$/\1 \2/p' "$work/out" | diff "$expected" - >"$work/difference" && continue
    echo "$family at $ranks ranks; '<' is of transformers, '>' of ours:"
    cat "$work/difference"
    exit 1
  done
  echo "$family writes as in transformers"
done

#!/bin/sh
# The option --device of examples where no GPU is visible: `cuda` fails before the first step and names the
# reason once, `auto` computes on the host, and other values are refused.
# Usage: device_option.sh PROGRAM, which is gpu_tensor_or_data_parallel
program=$1
out=$(mktemp)
trap 'rm "$out"' EXIT
train() { "$program" --synthetic -e 1 -s 2 --device "$1" >"$out" 2>&1; }

if train cuda; then exit 1; fi
cat "$out"
[ "$(grep -c 'a device was chosen, but not every rank has one' "$out")" -eq 1 ] || exit 1
if grep ', epoch 1 ' "$out"; then exit 1; fi

train auto || exit 1
grep ', epoch 1 ' "$out" || exit 1

if train gpu; then exit 1; fi
grep -e '--device: gpu not in {auto,cpu,cuda}' "$out"

#!/usr/bin/env bash
# An example learns on a GPU what it learns on the host: the mean losses of its first epoch, or the
# losses of its last step, are equal but for a thousandth.
# Usage: same_loss.sh PROGRAM ARGUMENT...
set -euo pipefail

loss_on() {  # loss_on <device> <program> <argument>...: what it says goes to the standard error
  local device=$1 said
  shift
  said=$("$@" --device "$device" | tee /dev/stderr) || return
  sed -nE 's/^(epoch 1 .*loss|loss of step 8 +tensor|step 18) +([^ ]+) .*/\2/p' <<<"$said"
}

gpu=$(loss_on cuda "$@")
host=$(loss_on cpu "$@")
awk -v gpu="$gpu" -v host="$host" 'BEGIN {
  off = gpu - host
  near = gpu ~ /^[0-9.]+$/ && host ~ /^[0-9.]+$/ && off * off <= (host / 1000) ^ 2
  print "the loss is " gpu " on the GPU and " host " on the host" (near ? "" : ": they differ")
  exit !near
}'

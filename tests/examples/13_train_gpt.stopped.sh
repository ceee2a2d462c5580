#!/bin/sh
# Example 13 stops on SIGTERM with exit code 75, and goes on from its last checkpoint: at the same
# number of ranks with the loss of a run that never stopped, at another with the same to 1 in 1000.
# Usage: 13_train_gpt.stopped.sh PROGRAM
program=$1
. "$(dirname "$0")/stopped.sh"

data='--text /usr/share/common-licenses/Apache-2.0 -b 4 --write 0'
stop_run "$program" $data -s 2 --steps 1000000

loss_of() { sed -n "s/^step $((step + 3)) *loss \([0-9.]*\).*/\1/p"; }

for ranks in 2 3; do
  cp -r "$work/run" "$work/run$ranks"
  "$program" $data -s $ranks --steps $((step + 3)) --checkpoints "$work/run$ranks" >"$work/out" 2>&1
  grep -q "goes on after step $step\$" "$work/out" || { cat "$work/out" >&2; exit 1; }
  echo "$ranks ranks, never stopped and stopped: $("$program" $data -s $ranks --steps $((step + 3)) | loss_of) $(loss_of <"$work/out")"
done >"$work/losses"
compare_losses

#!/bin/sh
# Example 13 stops on SIGTERM with exit code 75, and goes on from its last checkpoint: at the same
# number of ranks with the loss of a run that never stopped, at another with the same to 1 in 1000.
# Usage: 13_train_gpt.stopped.sh PROGRAM
program=$1
work=$(mktemp -d)
job=
trap '[ -z "$job" ] || kill -s KILL "$job"; rm -r "$work"' EXIT

data='--text /usr/share/common-licenses/Apache-2.0 -b 4 --write 0'

"$program" $data -s 2 --steps 1000000 --checkpoints "$work/run" --save-every 1 >"$work/out" 2>&1 &
job=$!
until ls "$work"/run/step-*.safetensors >"$work/saved" 2>&1; do
  kill -0 "$job" || break
  sleep 0.1
done
kill -s TERM "$job"
wait "$job"
code=$?
job=
step=$(sed -n 's/.*stopped by signal 15 after step //p' "$work/out")
echo "exit code $code after step $step"
[ "$code" -eq 75 ] && [ "$step" -gt 0 ] || { cat "$work/out"; exit 1; }

loss_of() { sed -n "s/^step $((step + 3)) *loss \([0-9.]*\).*/\1/p"; }

for ranks in 2 3; do
  cp -r "$work/run" "$work/run$ranks"
  "$program" $data -s $ranks --steps $((step + 3)) --checkpoints "$work/run$ranks" >"$work/out" 2>&1
  grep -q "goes on after step $step\$" "$work/out" || { cat "$work/out" >&2; exit 1; }
  echo "$ranks ranks, never stopped and stopped: $("$program" $data -s $ranks --steps $((step + 3)) | loss_of) $(loss_of <"$work/out")"
done >"$work/losses"
cat "$work/losses"
awk '
  { off = $8 / $7 - 1; if ($1 == 2 ? $7 != $8 : off > 1e-3 || off < -1e-3) failed = 1 }
  END { exit failed || NR != 2 }' "$work/losses"

#!/bin/sh
# Example 02 stops on SIGTERM with exit code 75, and goes on from its last checkpoint: at the same
# number of ranks its next whole epoch has the loss of a run that never stopped, at another the same
# to 1 in 1000. Its ranks are threads; with a launcher they are processes, and one gets the signal.
# Usage: 02_train_mlp.stopped.sh PROGRAM [LAUNCHER]
program=$1
launcher=$2
. "$(dirname "$0")/stopped.sh"

# The learning rate depends on the epochs, so no run has fewer; it is so small that losses stay large.
options='--synthetic -e 1000000 --lr 0.0001'

# start RANKS [ARGUMENT...]: becomes the program, or its launcher.
start() {
  ranks=$1
  shift
  [ -n "$launcher" ] || exec "$program" $options -s "$ranks" "$@"
  exec "$launcher" -n "$ranks" sh -c 'echo $$ >"$0"; exec "$@"' "$work/pid" \
    "$program" $options -s "$ranks" "$@"
}

stop_run start 2

# run EPOCHS RANKS [ARGUMENT...]: runs until it has told of so many epochs, into $work/out.
run() {
  epochs=$1
  ranks=$2
  shift 2
  : >"$work/out"  # the program may empty it later than this script reads it
  start "$ranks" "$@" >"$work/out" 2>"$work/errors" &
  job=$!
  until [ "$(grep -c '^epoch' "$work/out")" -ge "$epochs" ]; do
    kill -0 "$job" || { cat "$work/errors" >&2; exit 1; }
    sleep 0.1
  done
  terminate
  wait "$job" 2>/dev/null  # which says that it was ended
  job=
}

loss_of() { sed -n "s/^epoch $1  *loss \([0-9.]*\).*/\1/p" "$work/out"; }

for ranks in 2 3; do
  cp -r "$work/run" "$work/run$ranks"
  run 2 $ranks --checkpoints "$work/run$ranks"  # the first epoch is not whole
  grep -q "goes on after step $step\$" "$work/out" || { cat "$work/out" >&2; exit 1; }
  epoch=$(sed -n 's/^epoch \([0-9]*\) .*/\1/p' "$work/out" | sed -n 2p)
  stopped=$(loss_of "$epoch")
  run "$epoch" $ranks
  echo "$ranks ranks, never stopped and stopped: $(loss_of "$epoch") $stopped"
done >"$work/losses"
compare_losses

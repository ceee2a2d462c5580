# What the tests of examples that are stopped share; a script reads it by `.`.
# It makes the folder $work, which it removes at the end, and ends the process $job if there is one.
work=$(mktemp -d)
job=
trap '[ -z "$job" ] || { kill -s TERM "$job"; sleep 1; kill -s KILL "$job"; }; rm -r "$work"' EXIT

# To the process $job; or, if that is a launcher, to a process that has left its number in $work/pid.
terminate() { kill -s TERM "$(cat "$work/pid" 2>/dev/null || echo "$job")"; }

# stop_run PROGRAM [ARGUMENT...]: starts a run that saves itself in $work/run after each step, and
# sends it SIGTERM when it has. It must end with exit code 75. Sets $step to its last step.
stop_run() {
  "$@" --checkpoints "$work/run" --save-every 1 >"$work/out" 2>&1 &
  job=$!
  until ls "$work"/run/step-*.safetensors >"$work/saved" 2>&1; do
    kill -0 "$job" || break
    sleep 0.1
  done
  terminate
  wait "$job"
  code=$?
  job=
  step=$(sed -n 's/.*stopped by signal 15 after step //p' "$work/out")
  echo "exit code $code after step $step"
  [ "$code" -eq 75 ] && [ "$step" -gt 0 ] || { cat "$work/out"; exit 1; }
}

# Compares the two losses in each line of $work/losses: at 2 ranks they are the same, at others the
# same to 1 in 1000.
compare_losses() {
  cat "$work/losses"
  awk '
    NF != 8 { failed = 1; next }
    { off = $8 / $7 - 1; if ($1 == 2 ? $7 != $8 : off > 1e-3 || off < -1e-3) failed = 1 }
    END { exit failed || NR != 2 }' "$work/losses"
}

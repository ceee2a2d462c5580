#!/usr/bin/env bash
# What ./dev asks of CMake and of the machine, with a cmake that writes it down, and configures once for
# each of the two that it is asked: `demo` and `bench` do without the packages of the tests, and leave a
# folder that `test` can use.
# Usage: check_dev.sh CMAKE
set -euo pipefail
cd "$(dirname "$0")/.."
real_cmake=$1
tree=$PWD
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
mkdir "$work/bin"
cp dev "$work/"

cat >"$work/bin/cmake" <<FAKE
#!/bin/sh
[ "\$1" = --preset ] || exit 0
shift 2
if ! [ "\$*" = "\$(cat "$work/configured_for")" ]; then
  "$real_cmake" -S "$tree" -B "$work/configured" \$disabled "\$@" || exit 1
  echo "\$*" >"$work/configured_for"
fi
sed -n 's/^SHARDWISE_TESTS:[^=]*=/tests /p' "$work/configured/CMakeCache.txt" >>"$work/asked"
FAKE
printf '#!/bin/sh\necho "install ok installed"\n' >"$work/bin/dpkg-query"
printf '#!/bin/sh\nexit 0\n' >"$work/bin/apt-get"
chmod +x "$work/bin/"*
touch "$work/configured_for"

fail() {
  echo "check_dev: $*" >&2
  cat "$work/log" >&2
  exit 1
}

asks() {  # asks <what CMake is asked for> <command of dev>...: the program it would run is not there
  local expected=$1
  shift
  : >"$work/asked"
  PATH=$work/bin:$PATH "$work/dev" "$@" >"$work/log" 2>&1 && fail "dev $* ended well without a program"
  [[ $(<"$work/asked") == "$expected" ]] || fail "dev $* asked CMake for '$(<"$work/asked")'"
}

export disabled=-DCMAKE_DISABLE_FIND_PACKAGE_doctest=ON
asks 'tests OFF' demo
asks 'tests OFF' bench no_such_name
grep -q "no benchmark has 'no_such_name' in its name" "$work/log" || fail 'a wrong name was not told'

# The table of `demo`, of a program that prints and logs what example 07 does: its test
# 07_train_cnn.ways.sh demands lines of the same form.
mkdir -p "$work/build/release/examples"
cp -r --parents docs/plots "$work/"
cat >"$work/build/release/examples/07_train_cnn" <<'TRAINS'
#!/bin/bash
while [[ $# -gt 0 ]]; do
  case $1 in --way) way=$2 ;; -s) ranks=$2 ;; --log) log=$2 ;; --counts) echo counted ;; esac
  shift
done
printf 'way,ranks,images,what,value\n%s,%s,32,loss,2\n%s,%s,32,accuracy,0.5\n' $way $ranks $way $ranks >"$log"
echo "one step on $ranks rank(s) sends $((ranks * 1000 - 1000)) bytes in all:"
for epoch in 1 2; do
  echo "epoch $epoch   loss 0.${epoch}00000   test accuracy 7$epoch.00 %   $((ranks * 100 * epoch)) images/s"
done
TRAINS
chmod +x "$work/build/release/examples/07_train_cnn"
PATH=$work/bin:$PATH "$work/dev" demo --counts >"$work/log" 2>&1 || fail 'demo did not end well'
[[ $(grep -c '^counted$' "$work/log") -eq 7 ]] || fail 'demo did not print what was counted'
expected='gathered 1 0.200000 72.00 % 200 0 1.00
gathered 2 0.200000 72.00 % 400 1000 2.00
spatial 4 0.200000 72.00 % 800 3000 4.00'
[[ $(tr -s ' ' <"$work/log" | grep -E '^(gathered [12]|spatial 4) ') == "$expected" ]] || fail 'the table of demo is wrong'
grep -Eq '^(the curves: |no picture of the curves)' "$work/log" || fail 'demo did not say where the curves are'

# A benchmark that stops the run, as Ctrl-C does, in the middle of its second comparison.
cp -r bench "$work/"
mkdir -p "$work/build/release/bench"
cat >"$work/build/release/bench/bench_kernels_linear" <<'STOPS'
#!/bin/sh
for word; do case $word in --benchmark_out=*) out=${word#*=} ;; esac; done
cat >"$out" <<'JSON'
{
  "context": {},
  "benchmarks": [
    {
      "name": "the first one", "error_occurred": true
    },
    {
JSON
kill -INT $PPID
STOPS
chmod +x "$work/build/release/bench/bench_kernels_linear"
asks 'tests OFF' bench kernels_linear
grep -q 'stopped; build/bench/results.md has what was measured' "$work/log" || fail 'was not told to stop'
if command -v python3 >/dev/null; then
  grep -q 'the first one' "$work/build/bench/results.md" || fail 'what was measured is not in the tables'
fi

# `gpu bench`, which configures nothing: without a GPU, without programs, and with a program that
# measures and one that fails.
if ! command -v nvidia-smi >/dev/null; then
  asks '' gpu bench
  grep -q 'gpu bench runs on a machine with an NVIDIA GPU' "$work/log" || fail 'no GPU was not told'
fi
printf '#!/bin/sh\necho "a GPU, a driver, memory"\n' >"$work/bin/nvidia-smi"
chmod +x "$work/bin/nvidia-smi"
asks '' gpu bench
grep -q 'nothing is built: ./dev gpu build' "$work/log" || fail 'missing programs were not told'
programs=$work/build/gpu/programs
mkdir -p "$programs" "$work/tests/gpu"
cp tests/gpu/{same_loss,on_one_gpu}.sh "$work/tests/gpu/"
cat >"$programs/bench_gpu_a" <<'MEASURES'
#!/bin/sh
echo '{"context": {}, "benchmarks": [{"name": "what was measured", "error_occurred": true}]}' \
  >"${1#--benchmark_out=}"
MEASURES
printf '#!/bin/sh\nexit 1\n' >"$programs/bench_gpu_b"
printf '#!/bin/sh\necho "rank $RANK of $WORLD_SIZE"\n' >"$programs/bench_gpu_nccl_calls"
chmod +x "$programs"/bench_gpu_*
printf '#!/bin/sh\nexit 0\n' >"$work/bench/peers/gpu_peers.py"
asks '' gpu bench
grep -q '^rank 1 of 2$' "$work/log" || fail 'gpu bench did not start two processes for the calls of NCCL'
grep -q 'failed, or ran out of time: bench_gpu_b$' "$work/log" || fail 'a failed benchmark was not told'
page=$(echo "$work"/docs/gpu/*-bench.md)
grep -q 'GPU, driver, memory: a GPU, a driver, memory' "$page" || fail 'the page names no hardware'
if command -v python3 >/dev/null; then
  grep -q 'what was measured' "$page" || fail 'what was measured on a GPU is not in the page'
fi

# The processes end with their launcher.
left=$("$work/tests/gpu/on_one_gpu.sh" -n 2 sh -c \
  '[ "$RANK" = 0 ] || kill -TERM "$PPID"; sleep 20 >/dev/null; echo "left: $RANK"' 2>"$work/log") &&
  fail 'a launcher that was stopped ended well'
[[ -z $left ]] || fail "a launcher that was stopped left processes: $left"

# `gpu test`: programs, and examples that learn the same on a GPU as on the host, or something else.
printf '#!/bin/sh\necho "this is $0"\n' >"$programs/gpu_a"
printf '#!/bin/sh\necho "rank ${RANK:-0} of ${WORLD_SIZE:-1}"\n[ "${RANK:-0}" != 3 ]\n' >"$programs/gpu_nccl"
cat >"$programs/gpu_train_cnn" <<'LEARNS'
#!/bin/sh
case "$*" in *spatial*cuda*) loss=2.31 ;; *cuda) loss=2.301 ;; *) loss=2.300 ;; esac
echo "epoch 1   loss $loss   test accuracy 10.00 %   1000 images/s"
LEARNS
says_losses() {  # says_losses <of 05 on a GPU> <of 06 on a GPU>
  printf '#!/bin/sh\ncase "$*" in *cuda) loss=%s ;; *) loss=1.412 ;; esac
echo "loss of step 8   tensor $loss   data 1.412   relative"\n' "$1" >"$programs/gpu_tensor_or_data_parallel"
  printf '#!/bin/sh\ncase "$*" in *cuda) loss=%s ;; *) loss=0.062 ;; esac
echo "step 18    $loss     0.062 (same)"\n' "$2" >"$programs/gpu_resume_at_another_rank_count"
}
says_losses 1.412 0.062
chmod +x "$programs"/gpu_*
asks '' gpu test
grep -q '^rank 2 of 3$' "$work/log" || fail 'gpu test did not start processes as ranks'
grep -q '^rank 0 ended well, and others did not$' "$work/log" || fail 'who ended well was not told'
[[ $(grep -c '^dev: failed: nccl, 4 processes on one GPU$' "$work/log") -eq 1 ]] || fail 'a failed rank was not told'
printf '#!/bin/sh\n' >"$programs/gpu_nccl"
asks '' gpu test
[[ $(grep '^dev: ' "$work/log") == 'dev: failed: train_cnn, spatial' ]] ||
  fail 'another loss was not told, or more than that'
grep -q 'the loss is 2.31 on the GPU and 2.300 on the host: they differ' "$work/log" || fail 'losses were not told'
page=$(echo "$work"/docs/gpu/*-test.md)
grep -q '^# `./dev gpu test`$' "$page" || fail 'the page of gpu test names no command'
grep -q 'this is .*/gpu_a' "$page" || fail 'what a program says is not in the page'
sed -i 's/2\.31/2.301/' "$programs/gpu_train_cnn"
PATH=$work/bin:$PATH "$work/dev" gpu test >"$work/log" 2>&1 || fail 'gpu test failed though all is well'
rm "$programs/gpu_train_cnn"
says_losses 1.42 0.063
asks '' gpu test
[[ $(grep -c '^dev: failed: \(resume_at_another_rank_count\|tensor_or_data_parallel\)$' "$work/log") -eq 2 ]] ||
  fail 'another loss of examples 05 and 06 was not told'
rm "$programs"/gpu_{nccl,tensor_or_data_parallel,resume_at_another_rank_count}

# A program that does not end: what it said is kept, and it is no failure. The next has no time.
printf '#!/bin/sh\necho "it began"\nexec sleep 100\n' >"$programs/gpu_b"
printf '#!/bin/sh\nexit 3\n' >"$programs/gpu_c"
chmod +x "$programs"/gpu_?
sed -i 's/^gpu_seconds=450 /gpu_seconds=5 /' "$work/dev"
asks '' gpu test
[[ $(grep '^dev: ' "$work/log") == $'dev: ran out of time: b\ndev: ran out of time: c' ]] ||
  fail 'what ran out of time was not told'
grep -q 'it began' "$page" || fail 'what a program said before it was stopped is not in the page'
rm "$programs/gpu_b"
sed -i 's/^gpu_seconds=5 /gpu_seconds=450 /' "$work/dev"

# `gpu sanitize`: no examples, and fewer cases.
cat >"$work/bin/compute-sanitizer" <<'TOOL'
#!/bin/sh
[ -n "$SHARDWISE_TEST_FEWER" ] || exit 1
for program; do :; done
echo "$2 of $program"
exec "$program"
TOOL
chmod +x "$work/bin/compute-sanitizer"
for name in nccl tensor_or_data_parallel resume_at_another_rank_count; do
  cp "$programs/gpu_c" "$programs/gpu_$name"  # these would fail
done
mv "$programs/gpu_c" "$programs/gpu_train_mlp"
PATH=$work/bin:$PATH "$work/dev" gpu sanitize >"$work/log" 2>&1 || fail 'gpu sanitize failed though all is well'
page=$(echo "$work"/docs/gpu/*-sanitize.md)
grep -q '^# `./dev gpu sanitize`$' "$page" || fail 'the page of gpu sanitize names no command'
for tool in memcheck racecheck initcheck; do
  grep -q "^$tool of .*/gpu_a$" "$page" || fail "$tool did not run"
done

export disabled=-DCMAKE_DISABLE_FIND_PACKAGE_doctest=OFF
asks 'tests ON' test --quick
asks 'tests ON' test layers
status=0
"$work/dev" test --preset no_such_preset >"$work/log" 2>&1 || status=$?
[[ $status -eq 2 ]] || fail "an unknown preset ends with $status and not with 2"
grep -q 'no such preset: no_such_preset' "$work/log" || fail 'an unknown preset was not told'

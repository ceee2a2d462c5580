#!/usr/bin/env bash
# What tests/select_tests.py chooses in a build folder, and what it says of a name that it does not know.
# Usage: select_tests.sh BUILD    a folder to configure the preset dev in
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
cmake --preset dev -B "$build" >"$build.log" 2>&1 || { cat "$build.log" && exit 1; }

fail() {
  echo "select_tests: $*" >&2
  exit 1
}

chooses() {  # chooses <line> <argument>...: this line is in what it prints
  local line=$1 chosen
  shift
  chosen=$(tests/select_tests.py "$build" "$@")
  grep -qx "$line" <<<"$chosen" || fail "$* does not choose $line"
}

leaves() {  # leaves <line> <argument>...: this line is not
  local line=$1 chosen
  shift
  chosen=$(tests/select_tests.py "$build" "$@")
  if grep -qx "$line" <<<"$chosen"; then fail "$* chooses $line"; fi
}

chooses 'build tests/unit_layers' layers
chooses 'build .*/static/convolution.cpp.o' layers
leaves 'build tests/unit_core' layers
chooses 'build tests/unit_core' unit.core
chooses 'build tests/unit_core' --label quick
leaves 'build tests/laws_halos' --label quick
chooses 'build tests/unit_data' --affected-by include/shardwise/data/sampler.hpp
leaves 'build tests/unit_core' --affected-by include/shardwise/data/sampler.hpp
chooses 'build tests/unit_train' --affected-by tests/witness/values/training.safetensors
leaves 'build tests/unit_layers' --affected-by tests/witness/values/training.safetensors
leaves 'run .*' --affected-by README.md

status=0
said=$(tests/select_tests.py "$build" layer 2>&1) || status=$?
[[ $status -eq 2 ]] || fail "an unknown name ends with $status and not with 2"
[[ $said == *'no test is named layer. Near it: layers'* ]] || fail "of an unknown name it says: $said"

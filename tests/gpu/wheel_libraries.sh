#!/usr/bin/env bash
# ./dev gpu test finds what the system lacks of a program's libraries among Python's packages.
# Usage: wheel_libraries.sh ROOT COMPILER
set -euo pipefail
root=$1
compiler=$2
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

libraries=$work/site/nvidia/part/lib
mkdir -p "$work/tools" "$work/build/gpu/programs" "$libraries"
cp "$root/dev" "$work"
printf '#!/bin/sh\n' >"$work/tools/nvidia-smi"
chmod +x "$work/tools/nvidia-smi"
echo 'int part() { return 0; }' >"$work/part.cpp"
echo 'int part(); int main() { return part(); }' >"$work/main.cpp"
"$compiler" -shared -fPIC "$work/part.cpp" -o "$libraries/libpart.so"
"$compiler" "$work/main.cpp" -L "$libraries" -lpart -o "$work/build/gpu/programs/gpu_part"

export PATH=$work/tools:$PATH
unset LD_LIBRARY_PATH
if "$work/dev" gpu test; then
  echo 'the program ran without its library: the case below proves nothing'
  exit 1
fi
PYTHONPATH=$work/site "$work/dev" gpu test

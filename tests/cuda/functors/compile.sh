#!/usr/bin/env bash
# Compiles files to PTX, in one unit, and demands that each of their kernels writes to memory and holds no
# trap: of a loop that calls a function of the host alone nvcc makes a kernel that does nothing, and where
# one takes the address of a constant of the host, a kernel that ends there with an error; without a word.
# Usage: compile.sh NVCC PTX -IFOLDER... SOURCE...
set -euo pipefail

nvcc=$1 ptx=$2
shift 2
folders=()
while [[ $1 == -I* ]]; do
  folders+=("$1")
  shift
done
printf '#include "%s"\n' "$@" >"$ptx.cu"
"$nvcc" -std=c++20 --expt-relaxed-constexpr -arch=sm_90 -Werror all-warnings "${folders[@]}" -ptx "$ptx.cu" -o "$ptx"
awk '/\.entry/ { kernel = $0; writes = traps = 0; ++kernels }
     /st\.global/ { writes = 1 }
     /^[ \t]*trap;/ { traps = 1 }
     /^}/ && kernel != "" {
       if (!writes) { print "a kernel that does nothing: " kernel; ++bad }
       if (traps) { print "a kernel with a trap: " kernel; ++bad }
       kernel = ""
     }
     END { print kernels + 0 " kernels"; exit kernels == 0 || bad > 0 }' "$ptx"

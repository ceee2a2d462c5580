#!/usr/bin/env bash
# Compiles a file to PTX and demands that each of its kernels writes to memory: of a loop that calls
# a function of the host alone nvcc makes a kernel that does nothing, without a word.
# Usage: compile.sh NVCC SOURCE PTX -IFOLDER...
set -euo pipefail

"$1" -std=c++20 --expt-relaxed-constexpr -arch=sm_90 -Werror all-warnings "${@:4}" -ptx "$2" -o "$3"
awk '/\.entry/ { kernel = $0; writes = 0; ++kernels }
     /st\.global/ { writes = 1 }
     /^}/ && kernel != "" {
       if (!writes) { print "a kernel that does nothing: " kernel; ++empty }
       kernel = ""
     }
     END { print kernels + 0 " kernels"; exit kernels == 0 || empty > 0 }' "$3"

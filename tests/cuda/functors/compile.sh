#!/usr/bin/env bash
# Compiles files to PTX, in one unit, and demands that each of their kernels writes to memory and nothing holds
# a trap: of a loop that calls a function of the host alone nvcc makes a kernel that does nothing, and where
# one takes the address of a constant of the host, a kernel that ends there with an error; without a word.
# Demands also that each loop of the library is in a kernel: each struct below the first folder, which is the
# library's, that is called with a number of a row or element.
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
awk '/\.(entry|func)/ { name = $0; entry = /\.entry/; writes = traps = 0; kernels += entry }
     /st\.global/ { writes = 1 }
     /^[ \t]*trap;/ { traps = 1 }
     /^}/ && name != "" {
       if (entry && !writes) { print "a kernel that does nothing: " name; ++bad }
       if (traps) { print "a trap in: " name; ++bad }
       name = ""
     }
     END { print kernels + 0 " kernels"; exit kernels == 0 || bad > 0 }' "$ptx"

no_kernel=' EachArchetype TermArchetype RowArchetype PutArchetype '          # of concepts
no_kernel+='OverRow SumsOfBlock SumsOfChannels NormGradientsOfBlock WholeRow SumsOfRow EndOfRow '  # of the host, in place of others
no_kernel+='RowsInSlots SlotsInRows WeighedHidden HiddenBack CountedRows '  # of experts, on the host alone
no_kernel+='TakenRow GradientOfRow RopeFrequencies '                        # parts of others
kernels=$(grep '\.entry' "$ptx")
loops=0 missing=0
while read -r name; do
  ((++loops))
  if [[ $no_kernel != *" $name "* && $kernels != *"${#name}$name"* ]]; then
    echo "a loop in no kernel: $name; add it to a file beside $0, or to its no_kernel if no device runs it"
    missing=1
  fi
done < <(find "${folders[0]#-I}" -name '*.hpp' -print0 | sort -z | xargs -0 awk '
  match($0, /^ *(struct|class) [A-Za-z]+/) { name = substr($0, RSTART, RLENGTH); sub(/.* /, "", name) }
  /operator\(\)\(std::(size_t|uint64_t begin)/ && !/^ *\/\// { print name }')
[[ $loops -gt 0 && $missing -eq 0 ]]

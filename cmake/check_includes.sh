#!/usr/bin/env bash
# Includes point upwards only, a foreign library's header stays in the one place that wraps it, and each
# header refuses an older standard.
# Usage: check_includes.sh [root]    Prints each include that breaks a rule; exit code 1 if any did.
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

# What the headers of each folder may include, as folders or single files under shardwise/.
declare -A may=(
  [core]="core"
  [layout]="core layout"
  [comm]="core comm"
  [backend]="core backend"
  [redistribute]="core layout comm redistribute"
  [layers]="core layout comm backend redistribute layers"
  [model]="core layout comm backend redistribute layers/layer.hpp layers/merge.hpp layers/split_kind.hpp layers/stream.hpp model"
  [train]="core layout comm backend redistribute layers/layer.hpp model train"
  [pipeline]="core layout comm backend layers/layer.hpp layers/stream.hpp model train pipeline"
  [generate]="core layout comm backend redistribute model generate"
  [testing]="core layout comm backend redistribute model train testing"
  [observe]="core comm model observe"
  [data]="core layout data"
  [interop]="core layout interop"
  [run]="core comm backend run"
  [models]="core layout backend layers model models checkpoint"
  [checkpoint]="core layout comm model/run.hpp model/host_ranks.hpp model/load_state.hpp model/agree.hpp model/stages.hpp train data checkpoint"
)

# Foreign headers, and the only headers that may include them.
foreign=(
  'mpi\.h'                        'comm/detail/mpi_library\.hpp'
  'nccl\.h'                       'comm/detail/nccl_library\.hpp'
  '(cu[a-z]*[._].*|cuda.*|cublas.*|cudnn.*)' '(backend/cuda/.*|comm/detail/nccl_library\.hpp|run/cuda_devices\.hpp)'
  '(oneapi/)?dnnl.*'              'backend/onednn/.*'
  'c?blas.*\.h'                   'backend/cblas/.*'
  'nlohmann/.*'                   'checkpoint/(json|config_file)\.hpp'
  'nvtx3/.*'                      'observe/nvtx\.hpp'
)

declare -A includes_of=()  # header -> the headers of ours that it includes
declare -A wraps=()        # header -> the foreign header that it includes
failures=0
wrong() {
  echo "$1:$2: includes $3: $4"
  failures=$((failures + 1))
}

allowed() {  # allowed <folder> <included path>
  local part
  for part in ${may[$1]}; do
    [[ $2 == "$part" || $2 == "$part"/* ]] && return 0
  done
  return 1
}

check_ours() {  # check_ours <file> <line> <path of the header> <included path>
  local folder=${3%%/*}
  includes_of[$3]+=" $4"
  if [[ $3 != */* || $4 == version.hpp ]]; then
    return  # the umbrella may include everything that is portable
  elif [[ ! -v may[$folder] ]]; then
    wrong "$1" "$2" "$4" "no rule for the folder $folder; write one in cmake/check_includes.sh"
  elif ! allowed "$folder" "$4"; then
    wrong "$1" "$2" "$4" "$folder may include only: ${may[$folder]}"
  fi
}

check_foreign() {  # check_foreign <file> <line> <path of the header> <included path>
  local i
  for ((i = 0; i < ${#foreign[@]}; i += 2)); do
    if [[ $4 =~ ^${foreign[i]}$ ]]; then
      wraps[$3]=$4
      [[ $3 =~ ^${foreign[i + 1]}$ ]] || wrong "$1" "$2" "<$4>" "only ${foreign[i + 1]} may"
    fi
  done
}

check_umbrella() {  # nothing that it reaches may need a foreign library
  local -A seen=()
  local queue header source
  for source in compiled compiled_checkpoint; do
    queue=(shardwise.hpp "$source.cpp")
    while ((${#queue[@]} > 0)); do
      header=${queue[0]}
      queue=("${queue[@]:1}")
      [[ ! -v seen[$header] ]] || continue
      seen[$header]=1
      [[ ! -v wraps[$header] || $source != compiled ]] ||
        wrong include/shardwise/shardwise.hpp 1 "$header" "it needs <${wraps[$header]}>; the umbrella is portable"
      # shellcheck disable=SC2206  # a list of paths without spaces
      queue+=(${includes_of[$header]-})
    done
  done
  while IFS= read -r header; do
    [[ -v seen[${header#include/shardwise/}] ]] ||
      wrong include/shardwise/compiled.cpp 1 "no $header" "its functions would have no code with SHARDWISE_COMPILED"
  done < <(grep -rlx '#ifdef SHARDWISE_INLINE' include/shardwise)
}

# version.hpp refuses older standards. If each other header includes one of ours, then what a program
# reads of us first is version.hpp, whichever header it includes.
check_standard() {
  local file header
  while IFS= read -r file; do
    header=${file#include/shardwise/}
    [[ $header == version.hpp || -v includes_of[$header] ]] ||
      wrong "$file" 1 "no header of ours" "include shardwise/version.hpp, which refuses older standards"
  done < <(find include/shardwise -name '*.hpp')
}

count=0
while IFS=: read -r file line text; do
  header=${file#include/shardwise/}
  if [[ $text =~ ^[[:space:]]*#[[:space:]]*include[[:space:]]*[\"\<]([^\">]+)[\"\>] ]]; then
    path=${BASH_REMATCH[1]}
    count=$((count + 1))
    if [[ $path == shardwise/* ]]; then
      check_ours "$file" "$line" "$header" "${path#shardwise/}"
    else
      [[ $text != *\"* ]] || wrong "$file" "$line" "$path" 'write "shardwise/<folder>/<name>.hpp"'
      check_foreign "$file" "$line" "$header" "$path"
    fi
  fi
done < <(grep -rnE '^\s*#\s*include' include/shardwise)
check_umbrella
check_standard

echo "include order: $count includes, $failures against the rules"
[[ $count -gt 0 && $failures -eq 0 ]]

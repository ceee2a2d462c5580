#!/usr/bin/env bash
# What including and using the library costs a compiler: CPU seconds, the least of some runs.
# Usage: compile_time.sh [COMPILER [RUNS]]; g++ and 3 unless told otherwise.
set -euo pipefail
cd "$(dirname "$0")/../.."
compiler=${1-g++}
runs=${2-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

seconds() {  # seconds <source>
  local run least=9999 now
  TIMEFORMAT=%U
  for ((run = 0; run < runs; ++run)); do
    now=$({ time "$compiler" -std=c++20 -O2 -Iinclude -c "$1" -o "$work/out.o"; } 2>&1 | tail -n 1)
    least=$(printf '%s\n%s\n' "$least" "$now" | sort -n | head -n 1)
  done
  echo "$least"
}

printf '#include "shardwise/shardwise.hpp"\nint main() {}\n' >"$work/umbrella.cpp"
{ # the standard headers that the umbrella comes to include, and nothing else
  "$compiler" -std=c++20 -Iinclude -MM "$work/umbrella.cpp" | tr -s ' \\' '\n' |
    sed -n '/^include\/.*\.hpp$/p' | xargs grep -hoE '^#include <[a-z_]+>' | sort -u
  echo 'int main() {}'
} >"$work/standard.cpp"

program() {  # program <pairs of layers>: a model that trains one step on thread ranks
  local pair layers=
  for ((pair = 0; pair < $1; ++pair)); do  # all of different sizes, so of different types
    layers+="sw::ColumnParallelLinear<$((64 + pair)), $((128 + pair))>, sw::Relu, "
    layers+="sw::RowParallelLinear<$((128 + pair)), $((65 + pair))>, "
  done
  cat <<CODE
#include "shardwise/shardwise.hpp"
namespace sw = shardwise;
struct Net : sw::Sequential<${layers%, }> {};
int main() {
  sw::run_ranks(2, [](sw::ThreadCommunicator& ranks) {
    sw::Model<Net, sw::Context<float, sw::Reference, sw::ThreadCommunicator>> model(ranks,
                                                                                    sw::Seed{1});
    sw::Optimizer optimizer(model, sw::Sgd{.learning_rate = 0.1});
    const sw::Place place = sw::place_of(ranks);
    sw::Tensor<float, sw::Invariant> x({{sw::Axis::batch, 4}, {sw::Axis::feature, 64}}, place);
    sw::Tensor<std::int32_t, sw::Invariant> labels({{sw::Axis::batch, 4}}, place);
    sw::train_step(model, x.view(), labels.view(), sw::CrossEntropy{}, optimizer);
  });
}
CODE
}

echo "$("$compiler" --version | head -n 1), -O2, CPU seconds, least of $runs"
for name in standard umbrella; do
  printf '%-28s %6.2f\n' "$name headers" "$(seconds "$work/$name.cpp")"
done
for pairs in 1 4 16; do
  program "$pairs" >"$work/model.cpp"
  printf '%-28s %6.2f\n' "model of $((2 * pairs)) linear layers" "$(seconds "$work/model.cpp")"
done

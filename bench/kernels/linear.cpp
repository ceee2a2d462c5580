// The products of one linear layer in float and bf16, through OneDnn::Linear and by the same
// primitives called by hand. One thread, and the time of that thread alone.
//
//     bench_kernels_linear [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...
//
// "packed": the weight stays and has been packed. "plain": it changes before every call, as in
// training.

#include <string>
#include <vector>

#include "kernels/linear_by_hand.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "support/interleaved.hpp"
#include "support/program.hpp"

namespace {

using bench::LinearProduct;
using bench::LinearShape;
using bench::Timing;

template <class T>
std::vector<Timing> packed(const LinearShape& shape, LinearProduct product,
                           const bench::Effort& effort) {
  by_hand::Library library;
  bench::LinearLayer<shardwise::OneDnn, T> layer(shape);
  layer.settle();
  auto candidates = by_hand::Linear<T>(library, layer).with_packed_weight(product);
  candidates.push_back({"ours", [&] { layer.run(product); }});
  layer.require(product, candidates);
  return bench::interleave(candidates, effort);
}

template <class T>
std::vector<Timing> plain(const LinearShape& shape, LinearProduct product,
                          const bench::Effort& effort) {
  by_hand::Library library;
  bench::LinearLayer<shardwise::OneDnn, T> layer(shape);
  auto candidates = by_hand::Linear<T>(library, layer).with_plain_weight(product);
  candidates.push_back({"ours", [&] { layer.run_with_changed_weight(product); }});
  layer.require(product, candidates);
  return bench::interleave(candidates, effort);
}

/// A product so small that little but the call is left.
std::vector<Timing> call(int rounds) {
  auto timings =
      packed<float>({4, 16, 16}, LinearProduct::forward, {rounds, 1e-3, bench::Clock::thread});
  const double more = timings.back().seconds.median - timings.front().seconds.median;
  timings.back().also.emplace_back("ns more than by hand", more * 1e9);
  return timings;
}

template <class T>
void add(bench::Program& program, const std::string& dtype) {
  const bench::Effort effort{program.rounds(), 1e-3, bench::Clock::thread};
  for (const std::size_t rows : program.sizes<std::size_t>({16, 1, 128, 512})) {
    for (const LinearShape shape : {LinearShape{rows, 1024, 4096}, LinearShape{rows, 4096, 1024}}) {
      for (const auto product : {LinearProduct::forward, LinearProduct::backward_input}) {
        program.add(dtype + "/" + name(product) + "/packed/" + shape.name(),
                    [=] { return packed<T>(shape, product, effort); });
        program.add(dtype + "/" + name(product) + "/plain/" + shape.name(),
                    [=] { return plain<T>(shape, product, effort); });
      }
      program.add(dtype + "/" + name(LinearProduct::backward_weight) + "/" + shape.name(),
                  [=] { return plain<T>(shape, LinearProduct::backward_weight, effort); });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 15);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  const shardwise::detail::onednn::ThreadLimit one_thread(1);  // for the calls by hand too
  const int rounds = 10 * program.rounds();  // of a call that takes next to nothing
  program.add("float/call/rows:4/16->16", [=] { return call(rounds); });
  add<float>(program, "float");
  if (by_hand::multiplies_bf16()) add<shardwise::bf16>(program, "bf16");
  return program.run();
}

// What a rank computes of the linear layer 1024 -> 4096 that is split over 2, 4 or 8 ranks, against
// all of it, in float and bf16: a column shard has a part of the outputs, a row shard of the
// inputs. One thread, and the time of that thread alone.
//
//     bench_kernels_linear_shards [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...
//
// "efficiency" is the time of all of it, divided by ranks, over that of the shard: what is lost
// because a shard is a worse shape to multiply. Column shards have a ReLU fused, row shards none,
// for their outputs are added up first. All of it is computed through OneDnn::Linear, and the shard
// by each way of linear_by_hand.hpp too.

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/linear_by_hand.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "support/interleaved.hpp"
#include "support/program.hpp"

namespace {

using bench::LinearProduct;
using bench::LinearShape;

template <class T>
std::vector<bench::Timing> measure(const LinearShape& whole, const LinearShape& shard,
                                   LinearProduct product, const bench::Effort& effort) {
  by_hand::Library library;
  using Layer = bench::LinearLayer<shardwise::OneDnn, T>;
  using shardwise::Activation;
  const bool by_row = shard.in < whole.in;
  Layer unsplit(whole, by_row ? Activation::none : Activation::relu);
  Layer part(shard, unsplit.activation);
  const bool packs = product == LinearProduct::forward;
  const auto ways = by_hand::Linear<T>(library, part);
  const auto run = [=](Layer& layer) {
    packs ? layer.run(product) : layer.run_with_changed_weight(product);
  };
  if (packs) unsplit.settle(), part.settle();

  const bench::Candidate all{"not split", [&] { run(unsplit); }};
  std::vector<bench::Candidate> candidates =
      packs ? ways.with_packed_weight(product) : ways.with_plain_weight(product);
  candidates.push_back({"ours", [&] { run(part); }});
  unsplit.require(product, {all});
  part.require(product, candidates);
  candidates.insert(candidates.begin(), all);

  auto timings = bench::interleave(candidates, effort);
  const double ranks =
      static_cast<double>(whole.in * whole.out) / static_cast<double>(shard.in * shard.out);
  for (std::size_t i = 1; i < timings.size(); ++i)
    timings[i].also.emplace_back("efficiency", timings[i].speed.median / ranks);
  return timings;
}

template <class T>
void add(bench::Program& program, const std::string& dtype) {
  const bench::Effort effort{program.rounds(), 1e-3, bench::Clock::thread};
  const auto compare = [&](const std::string& split, LinearProduct product, std::size_t ranks,
                           const LinearShape& whole, const LinearShape& shard) {
    program.add(split + "/" + name(product) + "/" + dtype + "/ranks:" + std::to_string(ranks) +
                    "/" + shard.name(),
                [=] { return measure<T>(whole, shard, product, effort); });
  };
  for (const std::size_t rows : program.sizes<std::size_t>({16, 512})) {
    const LinearShape whole{rows, 1024, 4096};
    for (const std::size_t ranks : program.sizes<std::size_t>({2, 4, 8})) {
      for (const auto product : {LinearProduct::forward, LinearProduct::backward_input,
                                 LinearProduct::backward_weight}) {
        compare("column", product, ranks, whole, {rows, whole.in, whole.out / ranks});
        compare("row", product, ranks, whole, {rows, whole.in / ranks, whole.out});
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 11);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  const shardwise::detail::onednn::ThreadLimit one_thread(1);  // for the calls by hand too
  add<float>(program, "float");
  if (by_hand::multiplies_bf16()) add<shardwise::bf16>(program, "bf16");
  return program.run();
}

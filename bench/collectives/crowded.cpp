// More ranks than cores: rounds as in training, in which every rank multiplies and all sum up,
// against the ideal: the same multiplications on one thread a core, which never meet. In turns on
// the same threads, of which the ideal lets the others sleep.
//
//     bench_collectives_crowded [--rounds=15] [options of Google Benchmark]
//
// A round is given by the products that all ranks make together.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/bind.hpp"
#include "support/on_threads.hpp"
#include "support/program.hpp"
#include "support/together.hpp"

namespace {

using Ranks = shardwise::ThreadCommunicator;

/// Some microseconds of a core.
class SmallProduct {
 public:
  SmallProduct() : a_(extent * extent, 1), b_(extent * extent, 2), c_(extent * extent) {}

  /// c += a b, of whole numbers.
  void operator()() {
    for (std::size_t i = 0; i < extent; ++i)
      for (std::size_t k = 0; k < extent; ++k)
        for (std::size_t j = 0; j < extent; ++j)
          c_[i * extent + j] += a_[i * extent + k] * b_[k * extent + j];
  }

  /// How often it was called.
  float count() const { return c_[0] / static_cast<float>(2 * extent); }
  void clear() { std::fill(c_.begin(), c_.end(), 0.0F); }

 private:
  static constexpr std::size_t extent = 32;
  std::vector<float> a_, b_, c_;
};

/// One rank's part of `products` in a round.
class Round {
 public:
  Round(Ranks& ranks, std::size_t products, std::size_t floats)
      : ranks_(ranks), products_(products), in_(floats), sum_(floats) {}

  void multiply(std::size_t workers) {
    const auto rank = static_cast<std::size_t>(ranks_.rank());
    if (rank >= workers) return;
    for (std::size_t i = rank; i < products_; i += workers) product_();
  }

  void multiply_and_sum() {
    product_.clear();
    multiply(static_cast<std::size_t>(ranks_.size()));
    std::fill(in_.begin(), in_.end(), product_.count());
    ranks_.all_reduce<float>(in_, sum_);
    if (sum_.back() != static_cast<float>(products_))
      throw std::runtime_error("the ranks did not make all products");
  }

 private:
  Ranks& ranks_;
  std::size_t products_;
  SmallProduct product_;
  std::vector<float> in_, sum_;
};

std::vector<bench::Timing> compare(Ranks& ranks, std::size_t cores, std::size_t products,
                                   std::size_t bytes, int rounds) {
  Round round(ranks, products, bytes / sizeof(float));
  return bench::interleave(
      ranks,
      {{"ideal", [&] { round.multiply(cores); }}, {"rounds", [&] { round.multiply_and_sum(); }}},
      rounds, 3e-2);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 15);
  const std::size_t cores = bench::usable_cpus(false).size();
  program.note("cores", std::to_string(cores));
  constexpr std::size_t bytes = 65536;
  for (const std::size_t products : program.sizes<std::size_t>({64, 512, 4096}, 512)) {
    for (const int ranks : {2, 4, 8}) {
      program.add(std::to_string(ranks) + " ranks, " + std::to_string(products) +
                      " products and 64 KiB summed a round",
                  [=, &program] {
                    return bench::on_threads(ranks, [&](Ranks& all) {
                      return compare(all, std::min(cores, static_cast<std::size_t>(ranks)),
                                     products, bytes, program.rounds());
                    });
                  });
    }
  }
  return program.run();
}

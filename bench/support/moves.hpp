#pragma once
// Redistributions alone, as they are made between layers.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "shardwise/layout/tensor.hpp"
#include "shardwise/redistribute/run.hpp"
#include "support/random_values.hpp"
#include "support/together.hpp"

namespace bench {

/// One behind the other, each on tensors of its own.
template <class T, class C>
class Moves {
 public:
  explicit Moves(C& ranks) : ranks_(&ranks) {}

  template <shardwise::Layout From, shardwise::Layout To>
  void add(const shardwise::Shape& shape) {
    const shardwise::Place place = shardwise::place_of(*ranks_);
    const auto from = std::make_shared<shardwise::Tensor<T, From>>(shape, place);
    const auto to = std::make_shared<shardwise::Tensor<T, To>>(shape, place);
    const std::vector<T> values = random_values<T>(from->size());
    std::copy(values.begin(), values.end(), from->data());
    all_.push_back([=, ranks = ranks_, pool = pool_] {
      shardwise::redistribute(*ranks, *pool, std::as_const(*from).view(), to->view());
    });
  }

  /// In place, as a model sums what its own layer made. Sums of sums would overflow: so of zeros.
  void sum(const shardwise::Shape& shape) {
    const auto all = std::make_shared<shardwise::Tensor<T, shardwise::Invariant>>(
        shape, shardwise::place_of(*ranks_));
    all_.push_back([=, ranks = ranks_, pool = pool_] {
      const shardwise::View<const T, shardwise::Partial> part(all->data(), all->global(),
                                                              all->place());
      shardwise::redistribute(*ranks, *pool, part, all->view());
    });
  }

  void operator()() const {
    for (const Run& one : all_) one();
  }

 private:
  C* ranks_;
  std::shared_ptr<shardwise::Pool> pool_ = std::make_shared<shardwise::Pool>();
  std::vector<Run> all_;
};

}  // namespace bench

#pragma once
// The kernels of a mixture of experts, and what it keeps of a batch.

#include <cstddef>
#include <deque>

#include "shardwise/core/dtype.hpp"
#include "shardwise/layers/detail/routing.hpp"

namespace shardwise::detail {

/// What a mixture of experts computed in a forward, until its backward.
template <class T>
struct SavedByExperts {
  Routing<accumulate_t<T>> routing;
  PooledArray<T> logits;          // [rows, experts]
  PooledArray<T> gate, up;        // [slots, hidden]
  PooledArray<double> balance{};  // BalanceSums of the batch, if there is a balancing loss
};

/// The kernels of a mixture of experts.
template <class Backend, class T>
struct ExpertState {
  using Kernel = typename Backend::template Linear<T>;

  /// The products of one expert.
  struct Products {
    Kernel gate, up, down;

    Products(Backend& backend, std::size_t features, std::size_t hidden)
        : gate(backend, features, hidden),
          up(backend, features, hidden),
          down(backend, hidden, features) {}
  };

  ExpertState(Backend& backend, std::size_t features, std::size_t hidden, std::size_t experts,
              std::size_t held)
      : router(backend, features, experts) {
    for (std::size_t e = 0; e < held; ++e) products.emplace_back(backend, features, hidden);
  }

  Kernel router;
  std::deque<Products> products;  // of the rank's experts; kernels need not be movable
};

}  // namespace shardwise::detail

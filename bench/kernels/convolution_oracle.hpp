#pragma once
// What the readable loops make of a convolution's tensors.

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/convolution_by_hand.hpp"
#include "shardwise/backend/reference.hpp"
#include "support/require_equal.hpp"
#include "support/resnet50.hpp"

namespace bench {

/// Of forward and, in `training`, of backward.
template <class T>
class ConvolutionOracle {
 public:
  ConvolutionOracle(const by_hand::ConvolutionOf<T>& given, const ConvolutionShard& part,
                    bool with_backward)
      : y(given.y.size()),
        dx(given.dx.size()),
        dw(given.dw.size()),
        db(given.db.size()),
        shard(part),
        training(with_backward) {
    shardwise::Reference backend;
    shardwise::Reference::Convolution<T> kernel(backend, part.channels);
    const shardwise::Weight<T> weight{given.w.data(), 1};
    kernel.forward(part.call, given.x.data(), weight, given.bias.data(),
                   shardwise::Activation::none, y.data());
    if (training)
      kernel.backward(part.call, given.x.data(), given.dy.data(), weight, shardwise::Write::replace,
                      dw.data(), db.data(), dx.data());
  }

  /// Throws unless these are `who`'s results, those of backward only in training.
  void require(const std::string& who, const by_hand::ConvolutionOf<T>& got) const {
    equal(who + ", y", y, got.y, shard.y_terms());
    if (!training) return;
    equal(who + ", dx", dx, got.dx, shard.dx_terms());
    equal(who + ", dw", dw, got.dw, shard.dw_terms());
    equal(who + ", db", db, got.db, shard.dw_terms());
  }

  std::vector<T> y, dx, dw, db;
  ConvolutionShard shard;
  bool training;

 private:
  static void equal(const std::string& what, const std::vector<T>& exact, const std::vector<T>& got,
                    std::size_t terms) {
    require_equal(what, exact.data(), got.data(), exact.size(), terms);
  }
};

}  // namespace bench

#pragma once
// A backend's kernel of convolutions, on the tensors of one that is written by hand.

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/convolution_by_hand.hpp"
#include "shardwise/backend/reference.hpp"
#include "support/require_equal.hpp"
#include "support/resnet50.hpp"

namespace bench {

/// Computes what `given` does into results of its own.
template <class Backend, class T>
class ConvolutionKernel {
 public:
  ConvolutionKernel(const by_hand::ConvolutionOf<T>& given, const ConvolutionShard& part)
      : y(given.y.size()),
        dx(given.dx.size()),
        dw(given.dw.size()),
        db(given.db.size()),
        given_(&given),
        shard_(part) {}

  /// With the weight of the last time.
  void forward() {
    kernel_.forward(shard_.call, given_->x.data(), {given_->w.data(), version_},
                    given_->bias.data(), shardwise::Activation::none, y.data());
  }

  /// With a weight that counts as another one.
  void train() {
    ++version_;
    forward();
    kernel_.backward(shard_.call, given_->x.data(), given_->dy.data(), {given_->w.data(), version_},
                     shardwise::Write::replace, dw.data(), db.data(), dx.data());
  }

  std::vector<T> y, dx, dw, db;

 private:
  const by_hand::ConvolutionOf<T>* given_;
  ConvolutionShard shard_;
  Backend backend_;
  typename Backend::template Convolution<T> kernel_{backend_, shard_.channels};
  std::uint64_t version_ = 1;
};

/// What the readable loops make of a convolution's tensors.
template <class T>
class ConvolutionOracle {
 public:
  ConvolutionOracle(const by_hand::ConvolutionOf<T>& given, const ConvolutionShard& part,
                    bool training)
      : exact_(given, part), shard_(part), training_(training) {
    training ? exact_.train() : exact_.forward();
  }

  const ConvolutionKernel<shardwise::Reference, T>& exact() const { return exact_; }

  /// Throws unless these are `who`'s results, those of backward only if the oracle did it too.
  template <class Results>
  void require(const std::string& who, const Results& got) const {
    equal(who + ", y", exact_.y, got.y, shard_.y_terms());
    if (!training_) return;
    equal(who + ", dx", exact_.dx, got.dx, shard_.dx_terms());
    equal(who + ", dw", exact_.dw, got.dw, shard_.dw_terms());
    equal(who + ", db", exact_.db, got.db, shard_.dw_terms());
  }

 private:
  static void equal(const std::string& what, const std::vector<T>& exact, const auto& got,
                    std::size_t terms) {
    require_equal(what, exact.data(), got.data(), exact.size(), terms);
  }

  ConvolutionKernel<shardwise::Reference, T> exact_;
  ConvolutionShard shard_;
  bool training_;
};

}  // namespace bench

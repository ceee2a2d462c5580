#pragma once
// The backend that the others are compared with: plain loops, every dtype, no other library.

#include <cstddef>
#include <vector>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/detail/pooling_loops.hpp"
#include "shardwise/backend/detail/reference_convolution.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/independent_loop.hpp"

namespace shardwise {

/// Readable loops on the calling thread. Sums are computed in accumulate_t<T>, in an order that
/// depends only on the sizes.
class Reference {
 public:
  template <Real T>
  class Linear;

  ///@{
  /// The kernels of convolutions and of pooling, as `ConvolutionBackend` and `PoolingBackend` say.
  template <Real T>
  using Convolution = detail::ReferenceConvolution<T>;

  template <Real T>
  using MaxPooling = detail::MaxPoolingLoops<T>;

  template <Real T>
  using AveragePooling = detail::AveragePoolingLoops<T>;
  ///@}

  /// Calls f(i) for i = 0, ..., n - 1; the compiler chooses the order.
  template <class F>
  void for_each(std::size_t n, F f) {
    detail::independent_loop(n, f);
  }
};

/// The products of one linear layer; see LinearKernel for shapes. Packs nothing, so it ignores the
/// version of a weight; allocates only in its constructor.
template <Real T>
class Reference::Linear {
 public:
  ///@{
  /// As `LinearKernel` says.
  Linear(Reference&, std::size_t in, std::size_t out) : in_(in), out_(out), sums_(in) {}

  void forward(std::size_t rows, const T* x, Weight<T> weight, const T* bias, Activation activation,
               T* y) {
    // Called through a pointer, so that the loops are compiled once for all activations.
    const auto value = visit(activation, [](auto f) { return &decltype(f)::template value<A>; });
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t o = 0; o < out_; ++o) {
        A sum = detail::dot(x + r * in_, weight.data + o * in_, in_);
        if (bias != nullptr) sum += static_cast<A>(bias[o]);
        y[r * out_ + o] = static_cast<T>(value(sum));
      }
    }
  }

  void backward_input(std::size_t rows, const T* dy, Weight<T> weight, T* dx) {
    for (std::size_t r = 0; r < rows; ++r) {
      clear();
      for (std::size_t o = 0; o < out_; ++o)
        detail::add_scaled(sums_.data(), static_cast<A>(dy[r * out_ + o]), weight.data + o * in_,
                           in_);
      write(dx + r * in_, Write::replace);
    }
  }

  void backward_weight(std::size_t rows, const T* x, const T* dy, Write write_mode, T* dw, T* db) {
    for (std::size_t o = 0; o < out_; ++o) {
      clear();
      for (std::size_t r = 0; r < rows; ++r)
        detail::add_scaled(sums_.data(), static_cast<A>(dy[r * out_ + o]), x + r * in_, in_);
      write(dw + o * in_, write_mode);
    }
    if (db == nullptr) return;
    for (std::size_t o = 0; o < out_; ++o) {
      A sum = 0;
      for (std::size_t r = 0; r < rows; ++r) sum += static_cast<A>(dy[r * out_ + o]);
      detail::store(db[o], sum, write_mode);
    }
  }
  ///@}

 private:
  using A = accumulate_t<T>;

  void clear() { sums_.assign(in_, A(0)); }

  void write(T* row, Write write_mode) {
    for (std::size_t k = 0; k < in_; ++k) detail::store(row[k], sums_[k], write_mode);
  }

  std::size_t in_;
  std::size_t out_;
  std::vector<A> sums_;  // one row of a result before rounding
};

}  // namespace shardwise

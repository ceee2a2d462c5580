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

/// The products of one linear layer; see Backend for shapes. Packs nothing, so it ignores the
/// version of a weight; allocates only in its constructor.
template <Real T>
class Reference::Linear {
 public:
  ///@{
  /// As `Backend` says.
  Linear(Reference& backend, std::size_t in, std::size_t out)
      : backend_(&backend), in_(in), out_(out), sums_(in), totals_(in) {}

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
      write(sums_, dx + r * in_, Write::replace);
    }
  }

  void backward_weight(std::size_t rows, const T* x, const T* dy, Write write_mode, T* dw, T* db) {
    for (std::size_t o = 0; o < out_; ++o) {
      totals_.assign(in_, 0);
      detail::for_each_piece_of_rows(rows, [&](std::size_t begin, std::size_t end) {
        clear();
        for (std::size_t r = begin; r < end; ++r)
          detail::add_scaled(sums_.data(), static_cast<A>(dy[r * out_ + o]), x + r * in_, in_);
        for (std::size_t k = 0; k < in_; ++k) totals_[k] += static_cast<double>(sums_[k]);
      });
      write(totals_, dw + o * in_, write_mode);
    }
    if (db != nullptr)
      detail::put_column_sums(*backend_, detail::SummedRows<T>{rows, out_, out_, dy}, write_mode,
                              db);
  }
  ///@}

 private:
  using A = accumulate_t<T>;

  void clear() { sums_.assign(in_, A(0)); }

  template <class Number>
  void write(const std::vector<Number>& sums, T* row, Write write_mode) {
    for (std::size_t k = 0; k < in_; ++k)
      detail::store(row[k], static_cast<A>(sums[k]), write_mode);
  }

  Reference* backend_;
  std::size_t in_;
  std::size_t out_;
  std::vector<A> sums_;         // one row of a result before rounding
  std::vector<double> totals_;  // of the pieces of a row of dw; see rows_at_once
};

}  // namespace shardwise

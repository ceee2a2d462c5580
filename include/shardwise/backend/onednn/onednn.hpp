#pragma once
// The CPU engine: matrix products, attention and convolutions by oneDNN, for float and bf16. Link
// -ldnnl (and -ldl before glibc 2.34). Needs oneDNN 2 or 3; library.hpp has their differences.

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <concepts>
#include <cstddef>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/detail/pooling_loops.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/backend/onednn/attention_heads.hpp"
#include "shardwise/backend/onednn/forward.hpp"
#include "shardwise/backend/onednn/session.hpp"
#include "shardwise/backend/onednn/threads.hpp"
#include "shardwise/backend/onednn/weight_gradient.hpp"
#include "shardwise/backend/onednn/weight_product.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/independent_loop.hpp"

#ifdef __CUDACC__  // which does not know the pragma that unrolls a loop, and hands it on
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675
#endif
#include "shardwise/backend/onednn/pair_product.hpp"
#include "shardwise/backend/onednn/row_product.hpp"
#include "shardwise/backend/onednn/tile_product.hpp"
#include "shardwise/backend/onednn/transposed_product.hpp"
#ifdef __CUDACC__
#pragma nv_diagnostic pop
#endif

namespace shardwise {

namespace detail {

/// The dtypes of this backend; oneDNN 2 multiplies no others on a CPU.
template <class T>
concept OneDnnReal = std::same_as<T, float> || std::same_as<T, bf16>;

}  // namespace detail

/// oneDNN with `threads` OpenMP threads: one by default, because each rank computes on its own
/// thread. The setting applies only during calls of this object; the program's own setting stays.
///
/// An object and its kernels are for one thread at a time; it must outlive its kernels. bf16 needs
/// a processor with AVX-512; products are summed in float.
class OneDnn {
 public:
  template <detail::OneDnnReal T>
  class Linear;
  template <detail::OneDnnReal T>
  class Convolution;

  /// The library's maxima lose NaN, so training would not notice one.
  template <detail::OneDnnReal T>
  using MaxPooling = detail::MaxPoolingLoops<T>;

  template <detail::OneDnnReal T>
  class AveragePooling;

  template <detail::OneDnnReal T>
  class Attention;

  /// Throws argument_error for fewer than one thread, backend_error if the library fails.
  explicit OneDnn(int threads = 1) : threads_(threads) {
    if (threads < 1)
      throw argument_error(
          {"OneDnn: the number of threads is ", threads, "; it must be at least 1"});
  }

  /// Calls f(i) for i = 0, ..., n - 1; the compiler chooses the order.
  template <class F>
  void for_each(std::size_t n, F f) {
    detail::independent_loop(n, f);
  }

 private:
  int threads_;
  detail::onednn::Session session_;
  detail::onednn::AttentionMemory attention_;
};

/// The products of one linear layer; see Backend for shapes. A weight that stays is packed if that
/// pays for its size, its dtype and this number of rows (see WeightProduct), so equal calls give
/// equal bits. Others are read as they lie: in a forward of one row, or up to four of a large
/// weight, by a loop of shardwise (see RowProduct), in bf16 by pairs or tiles of the processor (see
/// PairProduct and TileProduct), of up to 48 rows as the first factor of a transposed product (see
/// TransposedProduct). Primitives are kept for the last row counts; a call with one of these row
/// counts does not allocate in shardwise. Throws backend_error if the library fails.
template <detail::OneDnnReal T>
class OneDnn::Linear {
 public:
  ///@{
  /// As `Backend` says.
  Linear(OneDnn& backend, std::size_t in, std::size_t out)
      : backend_(&backend),
        in_(in),
        out_(out),
        transposed_(in, out),
        forward_(Direction::forward, dtype_v<T>, in, out),
        backward_input_(Direction::backward_input, dtype_v<T>, in, out),
        backward_weight_(dtype_v<T>, in, out) {}

  void forward(std::size_t rows, const T* x, Weight<T> weight, const T* bias, Activation activation,
               T* y) {
    if (rows == 0 || out_ == 0) return;
    if (in_ == 0) return forward_of_nothing(rows, bias, activation, y);
    const detail::onednn::Forward<T> of{rows, in_, out_, x, weight.data, bias, activation, y};
    const bool reads_memory = backend_->threads_ == 1 && is_in_no_cache();
#ifdef __x86_64__
    if constexpr (std::same_as<T, bf16>) {
      using detail::onednn::PairProduct;
      if (reads_memory && PairProduct::gains(rows)) return PairProduct{of}.run();
    }
#endif
    if (backend_->threads_ == 1 && (rows == 1 || is_in_no_cache()) &&
        detail::onednn::gains_from_row_product<T>(rows, in_))
      return detail::onednn::RowProduct<T>{of}.run();
#ifdef __x86_64__
    if constexpr (std::same_as<T, bf16>) {
      using detail::onednn::TileProduct;
      if (reads_memory && TileProduct::gains(out_)) return TileProduct{of}.run(backend_->session_);
    }
#endif
    const ThreadLimit limit(backend_->threads_);
    weight.stays = weight.stays && !is_read_as_it_lies();
    if (is_in_no_cache() && !forward_.packs(rows, weight) &&
        detail::onednn::gains_from_transposed_product(rows))
      return transposed_.run(backend_->session_, of);
    forward_.run(backend_->session_, rows, x, weight, bias, activation, y);
  }

  void backward_input(std::size_t rows, const T* dy, Weight<T> weight, T* dx) {
    if (rows == 0 || in_ == 0) return;
    if (out_ == 0) {
      std::fill(dx, dx + rows * in_, T{});
      return;
    }
    const ThreadLimit limit(backend_->threads_);
    backward_input_.run(backend_->session_, rows, dy, weight, nullptr, Activation::none, dx);
  }

  void backward_weight(std::size_t rows, const T* x, const T* dy, Write write, T* dw, T* db) {
    if (db != nullptr)
      detail::put_column_sums(*backend_, detail::SummedRows<T>{rows, out_, out_, dy}, write, db);
    if (in_ == 0 || out_ == 0) return;
    if (rows == 0) {
      if (write == Write::replace) std::fill(dw, dw + out_ * in_, T{});
      return;
    }
    const ThreadLimit limit(backend_->threads_);
    if constexpr (std::same_as<T, float>) {
      backward_weight_.run(rows, x, dy, write, dw);
    } else {
      backward_weight_.run(backend_->session_, rows, x, dy, write, dw);
    }
  }
  ///@}

 private:
  using Direction = detail::onednn::Direction;
  using ThreadLimit = detail::onednn::ThreadLimit;

  /// Whether no product of a bf16 weight has a packed copy of it: such products have 0.67 to 1.07
  /// times the speed of packed ones, and half of the memory. See bench/log.md, "Few rows".
  bool is_read_as_it_lies() const {
    return std::same_as<T, bf16> && backend_->threads_ == 1 && is_in_no_cache() &&
           detail::onednn::has_vectors && detail::onednn::multiplies_pairs();
  }

  bool is_in_no_cache() const { return detail::onednn::is_in_no_cache(in_ * out_ * sizeof(T)); }

  /// A layer without inputs gives activation(bias).
  void forward_of_nothing(std::size_t rows, const T* bias, Activation activation, T* y) {
    visit(activation, [&](auto f) {
      for (std::size_t i = 0; i < rows * out_; ++i) {
        const float sum = bias == nullptr ? 0.0F : static_cast<float>(bias[i % out_]);
        y[i] = static_cast<T>(f.value(sum));
      }
    });
  }

  OneDnn* backend_;
  std::size_t in_;
  std::size_t out_;
  detail::onednn::TransposedProduct<T> transposed_;
  detail::onednn::WeightProduct forward_;
  detail::onednn::WeightProduct backward_input_;
  detail::onednn::WeightGradient backward_weight_;
};

}  // namespace shardwise

#include "shardwise/backend/onednn/attention.hpp"
#include "shardwise/backend/onednn/convolution.hpp"
#include "shardwise/backend/onednn/pooling.hpp"

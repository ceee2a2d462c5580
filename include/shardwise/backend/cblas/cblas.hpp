#pragma once
// Matrix products in double and float by any CBLAS: OpenBLAS, BLIS, MKL, netlib. Link the library
// that CMake's FindBLAS finds (and -ldl before glibc 2.34).

#include <concepts>
#include <cstddef>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/cblas/products.hpp"
#include "shardwise/backend/cblas/threads.hpp"
#include "shardwise/backend/detail/pooling_loops.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/independent_loop.hpp"

namespace shardwise {

/// The dtypes of CBLAS.
template <class T>
concept CblasReal = std::same_as<T, float> || std::same_as<T, double>;

/// CBLAS with `threads` threads for a product: one by default, because each rank computes on its
/// own thread, and ranks that share one thread pool wait for each other. CBLAS has no call for
/// this. For OpenBLAS the number is set here, for the whole process, so it must be the same for
/// every rank. For any other library set its environment variable (OMP_NUM_THREADS,
/// BLIS_NUM_THREADS, MKL_NUM_THREADS) to 1.
///
/// The library decides the order of sums; it depends only on the sizes while the number of threads
/// stays the same.
class Cblas {
 public:
  template <CblasReal T>
  class Linear;

  ///@{
  /// CBLAS has no pooling: these are plain loops. See `PoolingBackend`.
  template <CblasReal T>
  using MaxPooling = detail::MaxPoolingLoops<T>;

  template <CblasReal T>
  using AveragePooling = detail::AveragePoolingLoops<T>;
  ///@}

  /// Throws argument_error for fewer than one thread.
  explicit Cblas(int threads = 1) {
    if (threads < 1) {
      throw argument_error(
          {"Cblas: the number of threads is ", threads, "; it must be at least 1"});
    }
    detail::cblas::set_threads(threads);
  }

  /// Calls f(i) for i = 0, ..., n - 1; the compiler chooses the order.
  template <class F>
  void for_each(std::size_t n, F f) {
    detail::independent_loop(n, f);
  }
};

/// The products of one linear layer; see LinearKernel for shapes. Packs nothing, so it ignores the
/// version of a weight; allocates only in its constructor. Throws backend_error for extents that do
/// not fit into an int.
template <CblasReal T>
class Cblas::Linear {
 public:
  ///@{
  /// As `LinearKernel` says.
  Linear(Cblas& backend, std::size_t in, std::size_t out)
      : backend_(&backend), in_(in), out_(out) {}

  void forward(std::size_t rows, const T* x, Weight<T> weight, const T* bias, Activation activation,
               T* y) {
    detail::cblas::multiply<T>(rows, out_, in_, {x}, {weight.data, CblasTrans}, Write::replace, y);
    if (bias == nullptr && activation == Activation::none) return;
    visit(activation, [&](auto f) {
      for (std::size_t r = 0; r < rows; ++r) {
        T* const row = y + r * out_;
        for (std::size_t o = 0; o < out_; ++o)
          row[o] = f.value(bias == nullptr ? row[o] : row[o] + bias[o]);
      }
    });
  }

  void backward_input(std::size_t rows, const T* dy, Weight<T> weight, T* dx) {
    detail::cblas::multiply<T>(rows, in_, out_, {dy}, {weight.data}, Write::replace, dx);
  }

  void backward_weight(std::size_t rows, const T* x, const T* dy, Write write, T* dw, T* db) {
    detail::cblas::multiply<T>(out_, in_, rows, {dy, CblasTrans}, {x}, write, dw);
    if (db != nullptr)
      detail::put_column_sums(*backend_, detail::SummedRows<T>{rows, out_, out_, dy}, write, db);
  }
  ///@}

 private:
  Cblas* backend_;
  std::size_t in_;
  std::size_t out_;
};

}  // namespace shardwise

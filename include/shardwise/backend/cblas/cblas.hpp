#pragma once
// Matrix products in double and float by any CBLAS: OpenBLAS, BLIS, MKL, netlib. Link the library
// that CMake's FindBLAS finds (and -ldl before glibc 2.34).

#include <cblas.h>
#include <dlfcn.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>
#include <mutex>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/detail/pooling_loops.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/independent_loop.hpp"

namespace shardwise {

namespace detail::cblas {

/// Functions of OpenBLAS beyond CBLAS, looked up by name in the running program; null for another
/// library.
struct OpenBlas {
  int (*threads)() = find<int()>("openblas_get_num_threads");
  void (*set_threads)(int) = find<void(int)>("openblas_set_num_threads");

  static const OpenBlas& instance() {
    static const OpenBlas found;
    return found;
  }

 private:
  template <class Function>
  static Function* find(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  }
};

/// Sets the number of OpenBLAS's threads to `threads`, for the whole process: it has no setting for
/// a caller or a call.
inline void set_threads(int threads) {
  static std::mutex one_at_a_time;
  const std::scoped_lock lock(one_at_a_time);
  const OpenBlas& library = OpenBlas::instance();
  if (library.threads == nullptr || library.set_threads == nullptr) return;
  if (library.threads() != threads) library.set_threads(threads);
}

/// A row-major matrix, or its transpose.
template <class T>
struct Factor {
  const T* data;
  CBLAS_TRANSPOSE as = CblasNoTrans;
};

inline int checked_extent(std::size_t extent) {
  if (extent > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw backend_error({"CBLAS counts rows and columns in an int, but a matrix has ", extent,
                         " of them; use more ranks or fewer rows at once"});
  }
  return static_cast<int>(extent);
}

/// c[m, n] (+)= a[m, k] b[k, n]; m, n and k are those of the product, after transposition. An empty
/// sum is zero; CBLAS itself rejects the stride 0 of an empty matrix.
/// throws   backend_error for extents that do not fit into an int
template <class T>
void multiply(std::size_t m, std::size_t n, std::size_t k, Factor<T> a, Factor<T> b, Write write,
              T* c) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (write == Write::replace) std::fill(c, c + m * n, T(0));
    return;
  }
  const int rows = checked_extent(m);
  const int columns = checked_extent(n);
  const int length = checked_extent(k);
  const int stride_a = a.as == CblasNoTrans ? length : rows;
  const int stride_b = b.as == CblasNoTrans ? columns : length;
  const T beta = write == Write::add ? T(1) : T(0);
  if constexpr (sizeof(T) == sizeof(double)) {
    cblas_dgemm(CblasRowMajor, a.as, b.as, rows, columns, length, 1.0, a.data, stride_a, b.data,
                stride_b, beta, c, columns);
  } else {
    cblas_sgemm(CblasRowMajor, a.as, b.as, rows, columns, length, 1.0F, a.data, stride_a, b.data,
                stride_b, beta, c, columns);
  }
}

}  // namespace detail::cblas

namespace detail {

/// The dtypes of CBLAS.
template <class T>
concept CblasReal = std::same_as<T, float> || std::same_as<T, double>;

}  // namespace detail

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
  template <detail::CblasReal T>
  class Linear;

  ///@{
  /// CBLAS has no pooling: these are plain loops. See `PoolingBackend`.
  template <detail::CblasReal T>
  using MaxPooling = detail::MaxPoolingLoops<T>;

  template <detail::CblasReal T>
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

/// The products of one linear layer; see Backend for shapes. Packs nothing, so it ignores the
/// version of a weight; allocates only in its constructor. Throws backend_error for extents that do
/// not fit into an int.
template <detail::CblasReal T>
class Cblas::Linear {
 public:
  ///@{
  /// As `Backend` says.
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

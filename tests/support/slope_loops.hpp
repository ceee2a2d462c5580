#pragma once
// A SlopeKernel of plain loops: what it does gives the bits of the same work done apart.

#include <atomic>
#include <cstddef>

#include "shardwise/backend/reference.hpp"
#include "shardwise/layers/elementwise.hpp"

namespace testing {

/// How often kernels of all ranks have saved z, and multiplied by a slope.
struct SlopesDone {
  static inline std::atomic<int> saved = 0;
  static inline std::atomic<int> multiplied = 0;
};

/// Products of `Reference` that have the slopes of two activations.
template <shardwise::Real T>
class SlopeLoops {
 public:
  SlopeLoops(shardwise::Reference& backend, std::size_t in, std::size_t out)
      : backend_(backend), in_(in), out_(out), products_(backend, in, out) {}

  static constexpr bool has_slope_of(shardwise::Activation activation) {
    return activation == shardwise::Activation::gelu_tanh ||
           activation == shardwise::Activation::silu;
  }

  void forward(std::size_t rows, const T* x, shardwise::Weight<T> weight, const T* bias,
               shardwise::Activation activation, T* y, T* z = nullptr) {
    if (!has_slope_of(activation)) return products_.forward(rows, x, weight, bias, activation, y);
    T* const sums = z != nullptr ? z : y;
    products_.forward(rows, x, weight, bias, shardwise::Activation::none, sums);
    visit(activation, [&](auto f) {
      backend_.for_each(rows * out_, shardwise::detail::Applied<decltype(f), T>{sums, y});
    });
    if (z != nullptr) ++SlopesDone::saved;
  }

  void backward_input(std::size_t rows, const T* dy, shardwise::Weight<T> weight, T* dx) {
    products_.backward_input(rows, dy, weight, dx);
  }
  void backward_input(std::size_t rows, const T* dy, shardwise::Weight<T> weight, T* dx,
                      shardwise::Activation before, const T* z) {
    products_.backward_input(rows, dy, weight, dx);
    visit(before, [&](auto f) {
      backend_.for_each(rows * in_, shardwise::detail::TimesSlope<decltype(f), T>{z, dx, dx});
    });
    ++SlopesDone::multiplied;
  }

  void backward_weight(std::size_t rows, const T* x, const T* dy, shardwise::Write write, T* dw,
                       T* db) {
    products_.backward_weight(rows, x, dy, write, dw, db);
  }

 private:
  shardwise::Reference& backend_;
  std::size_t in_, out_;
  shardwise::Reference::Linear<T> products_;
};

/// `Reference` with those.
class Sloping : public shardwise::Reference {
 public:
  template <shardwise::Real T>
  using Linear = SlopeLoops<T>;
};

static_assert(shardwise::SlopeKernel<Sloping::Linear<float>, float>);
static_assert(!shardwise::SlopeKernel<shardwise::Reference::Linear<float>, float>);

}  // namespace testing

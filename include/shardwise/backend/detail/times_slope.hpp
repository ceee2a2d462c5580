#pragma once
// Backward through an element-wise function.

#include <cstddef>

#include "shardwise/core/dtype.hpp"

namespace shardwise::detail {

/// f'(x), for an f that takes its slope from its input or from its output.
template <class F, class A>
constexpr A slope_at(A x) {
  return F::slope(F::slope_from_output ? F::value(x) : x);
}

/// dx = dy f', with f' from the saved tensor. dx may be dy.
template <class F, class T>
struct TimesSlope {
  const T* saved;
  const T* dy;
  T* dx;

  constexpr void operator()(std::size_t i) const {
    using A = accumulate_t<T>;
    dx[i] = static_cast<T>(static_cast<A>(dy[i]) * F::slope(static_cast<A>(saved[i])));
  }
};

}  // namespace shardwise::detail

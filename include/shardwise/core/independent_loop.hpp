#pragma once
// A loop whose iterations do not depend on each other.

#include <cstddef>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// Calls f(i) for every i in [0, n), in any order. Tells g++ that no iteration reads what another
/// one writes, so that it vectorises the loop even if input and output are the same memory. At -O2,
/// g++ 12 vectorises only loops of a known number of iterations, so the loop runs in blocks. It has
/// a copy of f: g++ must assume that an iteration could write to what f refers to, but not to that.
/// Always inlined, and flat: clang would keep a long loop, or a long f, as a function of its own,
/// which has not the wide vectors of its caller.
template <class F>
[[gnu::always_inline, gnu::flatten]] constexpr void plain_loop(std::size_t n, const F& given) {
  const F f = given;
  std::size_t i = 0;
#if defined(__GNUC__) && !defined(__clang__)
  constexpr std::size_t block = 16;
  for (; i + block <= n; i += block) {
#pragma GCC ivdep
    for (std::size_t k = 0; k < block; ++k) f(i + k);
  }
#endif
  for (; i < n; ++i) f(i);
}

// A program that is compiled for every x86-64 processor has vectors of 4 floats, and most
// processors have those of 8. Without optimisation no loop has vectors.
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__AVX2__)

template <class F>
[[gnu::target("avx2"), gnu::flatten]] void in_wide_vectors(const F& f) {
  f();
}

/// Calls f(), compiled for vectors of 8 floats where the processor has them. f has the same bits
/// without, because AVX2 alone has no multiplication and addition that round once (FMA is another
/// set): so ranks on unlike machines, and runs on them, agree.
template <class F>
void in_widest_vectors(const F& f) {
  __builtin_cpu_supports("avx2") ? in_wide_vectors(f) : f();
}

#else

/// Calls f().
template <class F>
void in_widest_vectors(const F& f) {
  f();
}

#endif

/// Whether each iteration is a loop, so that no vector has elements of several iterations.
template <class F>
inline constexpr bool is_loop = false;
template <class F>
requires(F::is_loop) inline constexpr bool is_loop<F> = true;

/// Whether no part of an iteration has vectors, as where it draws random numbers.
template <class F>
inline constexpr bool is_scalar = false;
template <class F>
requires(F::is_scalar) inline constexpr bool is_scalar<F> = true;

/// Whether f has forms, in which choices that are the same in all iterations are constants:
/// f.in_form(g) calls g(form) for the one that is right. A loop with such choices has no vectors.
template <class F>
inline constexpr bool has_forms = false;
template <class F>
requires(F::has_forms) inline constexpr bool has_forms<F> = true;

/// Calls f(i) for every i in [0, n), in any order.
template <class F>
void independent_loop(std::size_t n, const F& f) {
  const auto in_order = [&] {
    for (std::size_t i = 0; i < n; ++i) f(i);
  };
  if constexpr (is_scalar<F>) {
    in_order();
  } else if constexpr (is_loop<F>) {
    in_widest_vectors(in_order);
  } else if constexpr (has_forms<F>) {
    f.in_form([n](const auto& form) { independent_loop(n, form); });
  } else {
    in_widest_vectors([&] { plain_loop(n, f); });
  }
}

}  // namespace shardwise::detail

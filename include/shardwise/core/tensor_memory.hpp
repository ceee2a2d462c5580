#pragma once
// Reads and writes tensors in the memory of the backend: of the host, or of a device that the host
// must not access.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"

namespace shardwise {

/// The terms of many rows that are neighbours in memory, so that they are best read together: those
/// of one row, or those of one index.
enum class Adjacent : std::uint8_t { terms, rows };

namespace detail {

struct EachArchetype {
  constexpr void operator()(std::size_t) const {}
};
struct TermArchetype {
  constexpr float operator()(std::size_t) const { return 0; }
};
struct RowArchetype {
  constexpr TermArchetype operator()(std::size_t) const { return {}; }
};
struct CombineArchetype {
  constexpr float operator()(float a, float) const { return a; }
};
struct PutArchetype {
  constexpr void operator()(std::size_t, float) const {}
};

}  // namespace detail

/// A backend that keeps tensors in memory of a device. In addition to `Backend` it has
///
///     backend.memory()
///         the MemorySource of that memory
///     backend.reduce_each(rows, n, adjacent, first, terms, combine, put)
///         for each r < rows: put(r, result), where result is first, terms(r)(0), ...,
///         terms(r)(n - 1), combined in an order that depends only on n and `adjacent`; each term
///         is computed once, and may write to its element
///     backend.to_host(from, n, to)
///         copies n elements to the host; done when it returns
///     backend.to_device(from, n, to)
///         copies n elements of the host, which may be reused when it returns
///     backend.reaches(from)
///         whether loops and kernels may read and write this address
///
/// These calls, for_each and the kernels run in the order in which they are called.
///
/// The arguments of for_each and reduce_each are objects of named types, copied to the device. They
/// contain only numbers and pointers to its memory; their call operators, and all functions that
/// these call, are constexpr. Results are numbers, or structs of numbers. nvcc compiles such
/// functions for the device too (--expt-relaxed-constexpr), and the tests run the same functions on
/// the host. They take no reference to a constant outside of them, as std::min(limit, n) does: the
/// constant is on the host, and nvcc compiles a kernel that ends in a trap, without a word. Write
/// std::min(std::size_t{limit}, n).
template <class B>
concept DeviceBackend = requires(B& backend, const B& constant, const float* from, float* to) {
  { backend.memory() } -> std::convertible_to<MemorySource&>;
  backend.for_each(std::size_t{}, detail::EachArchetype{});
  backend.reduce_each(std::size_t{}, std::size_t{}, Adjacent::terms, 0.0F, detail::RowArchetype{},
                      detail::CombineArchetype{}, detail::PutArchetype{});
  backend.to_host(from, std::size_t{}, to);
  backend.to_device(from, std::size_t{}, to);
  { constant.reaches(from) } -> std::convertible_to<bool>;
};

namespace detail {

/// The memory of the tensors of a model on this backend.
template <class B>
MemorySource& memory_of([[maybe_unused]] B& backend) {
  if constexpr (DeviceBackend<B>) {
    return backend.memory();
  } else {
    return host_memory();
  }
}

/// Throws argument_error if loops of a device cannot reach the view `what`; who() is the name of
/// the function that got it.
template <class B, class V, class Who>
void require_reach([[maybe_unused]] const B& backend, [[maybe_unused]] const V& view,
                   [[maybe_unused]] const Who& who, [[maybe_unused]] std::string_view what) {
  if constexpr (DeviceBackend<B>) {
    if (view.size() == 0 || backend.reaches(view.data())) return;
    throw argument_error({who(), ": the ", what,
                          " lies in memory that the model's device does not reach, the host's or "
                          "another device's: take it there with the model's to_device"});
  }
}

/// a + b.
struct Plus {
  template <class A>
  constexpr A operator()(A a, A b) const {
    return static_cast<A>(a + b);
  }
};

/// The larger one, or NaN if one of them is NaN. Without a branch, so that g++ vectorises it.
struct Largest {
  template <class A>
  constexpr A operator()(A a, A b) const {
    const bool replaces = (static_cast<int>(b > a) | static_cast<int>(b != b)) != 0;
    return replaces ? b : a;
  }
};

/// Combines term(begin), ..., term(begin + n - 1) into the lanes, in turn from the first lane on,
/// so that the compiler vectorises it.
template <std::size_t lanes, class A, class Term, class Combine>
[[gnu::always_inline]] constexpr void combine_into(std::array<A, lanes>& results, std::size_t begin,
                                                   std::size_t n, const Term& term,
                                                   const Combine& combine) {
  std::size_t k = 0;
  for (; k + lanes <= n; k += lanes) {
    for (std::size_t l = 0; l < lanes; ++l)
      results[l] = combine(results[l], static_cast<A>(term(begin + k + l)));
  }
  for (std::size_t l = 0; k + l < n; ++l)
    results[l] = combine(results[l], static_cast<A>(term(begin + k + l)));
}

/// first, term(begin), ..., term(begin + n - 1), combined: in lanes, and the lanes in order at the
/// end.
template <std::size_t lanes, class A, class Term, class Combine>
[[gnu::always_inline]] constexpr A reduce_in_lanes(std::size_t begin, std::size_t n, A first,
                                                   const Term& term, const Combine& combine) {
  std::array<A, lanes> results{};
  for (A& result : results) result = first;
  combine_into(results, begin, n, term, combine);
  A all = first;
  for (const A result : results) all = combine(all, result);
  return all;
}

/// The terms that are combined in lanes, and the number of such pieces that are combined one after
/// the other. The terms of a long sum are not added to the whole sum so far: in float it would lose
/// the last digits of each, and be wrong by 1 % for ten million terms.
inline constexpr std::size_t terms_of_piece = 4096;
inline constexpr std::size_t pieces_in_a_row = 256;

/// first, term(0), ..., term(n - 1), combined in lanes, piece by piece. `first` is the neutral
/// element. A sum has the bits of its number of lanes; a maximum is the same with any, and g++ -O3
/// vectorises it with 32 only. Inlined always, since clang's `flatten` (see `in_widest_vectors`)
/// does not reach it.
template <std::size_t lanes = 16, class A, class Term, class Combine>
[[gnu::always_inline]] constexpr A lane_reduce(std::size_t n, A first, const Term& term,
                                               const Combine& combine) {
  A all = first, some = first;
  std::size_t pieces = 0;
  for (std::size_t begin = 0; begin < n; begin += terms_of_piece) {
    const std::size_t here = n - begin < terms_of_piece ? n - begin : terms_of_piece;
    some = combine(some, reduce_in_lanes<lanes>(begin, here, first, term, combine));
    if (++pieces % pieces_in_a_row != 0) continue;
    all = combine(all, some);
    some = first;
  }
  return combine(all, some);
}

/// out[r] = result.
template <class A>
struct PutInto {
  A* out;
  constexpr void operator()(std::size_t r, A result) const { out[r] = result; }
};

/// For each r < rows: put(r, first and the terms terms(r)(0), ..., terms(r)(n - 1), combined),
/// where the terms of a row are neighbours in memory. On the host in the order of `lane_reduce`.
template <class B, class A, class Terms, class Combine, class Put>
void reduce_each(B& backend, std::size_t rows, std::size_t n, A first, const Terms& terms,
                 const Combine& combine, const Put& put) {
  if constexpr (DeviceBackend<B>) {
    backend.reduce_each(rows, n, Adjacent::terms, first, terms, combine, put);
  } else {
    backend.for_each(rows,
                     [=](std::size_t r) { put(r, lane_reduce(n, first, terms(r), combine)); });
  }
}

/// The terms of the only row.
template <class Term>
struct OnlyRow {
  Term term;
  constexpr Term operator()(std::size_t) const { return term; }
};

/// *out = first, term(0), ..., term(n - 1), combined; out is in the memory of the backend's
/// tensors.
template <class B, class A, class Term, class Combine>
void reduce([[maybe_unused]] B& backend, std::size_t n, A first, const Term& term,
            const Combine& combine, A* out) {
  if constexpr (DeviceBackend<B>) {
    backend.reduce_each(1, n, Adjacent::terms, first, OnlyRow<Term>{term}, combine,
                        PutInto<A>{out});
  } else {
    *out = lane_reduce(n, first, term, combine);
  }
}

/// The same as a number of the host.
template <class B, class A, class Term, class Combine>
A reduced(B& backend, [[maybe_unused]] Pool& pool, std::size_t n, A first, const Term& term,
          const Combine& combine) {
  if constexpr (DeviceBackend<B>) {
    const Buffer memory = pool.take(sizeof(A));
    A* const out = static_cast<A*>(memory.data());
    reduce(backend, n, first, term, combine, out);
    A result{};
    backend.to_host(out, 1, &result);
    return result;
  } else {
    return lane_reduce(n, first, term, combine);
  }
}

/// Copies `n` elements from the memory of the backend's tensors to the host.
template <class B, class T>
void to_host([[maybe_unused]] B& backend, const T* from, std::size_t n, T* to) {
  if constexpr (DeviceBackend<B>) {
    if (n > 0) backend.to_host(from, n, to);
  } else {
    std::copy_n(from, n, to);
  }
}

/// Copies `n` elements of the host to the memory of the backend's tensors.
template <class B, class T>
void to_device([[maybe_unused]] B& backend, const T* from, std::size_t n, T* to) {
  if constexpr (DeviceBackend<B>) {
    if (n > 0) backend.to_device(from, n, to);
  } else {
    std::copy_n(from, n, to);
  }
}

/// In place of a backend, for tensors of the host.
struct NoBackend {};

template <class T>
struct Fill {
  T* data;
  T value;
  constexpr void operator()(std::size_t i) const { data[i] = value; }
};

/// data[i] = value.
template <class B, class T>
void fill([[maybe_unused]] B& backend, T* data, std::size_t n, T value) {
  if constexpr (DeviceBackend<B>) {
    backend.for_each(n, Fill<T>{data, value});
  } else {
    std::fill_n(data, n, value);
  }
}

template <class T>
struct Copy {
  const T* from;
  T* to;
  constexpr void operator()(std::size_t i) const { to[i] = from[i]; }
};

/// to[i] = from[i], unless both are the same memory; both are in the memory of the backend's
/// tensors.
template <class B, class T>
void copy([[maybe_unused]] B& backend, const T* from, std::size_t n, T* to) {
  if (from == to) return;
  if constexpr (DeviceBackend<B>) {
    backend.for_each(n, Copy<T>{from, to});
  } else {
    std::copy_n(from, n, to);
  }
}

}  // namespace detail

}  // namespace shardwise

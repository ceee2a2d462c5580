#pragma once
// The linear layer whose outputs are the heads of an attention.

#include <cstddef>
#include <string>

#include "shardwise/core/names.hpp"
#include "shardwise/layers/linear.hpp"

namespace shardwise {

namespace detail {

template <class S, std::size_t In, std::size_t Heads, std::size_t Size, bool Bias>
using linear_to_heads = Linear<S, In, Heads * Size, Bias>;

}  // namespace detail

/// A `Linear` of In features to `Heads` heads of `Size` features each. A rank holds whole heads:
/// those of its block of the heads, see `block_of`. With sizes that are given at run time it is
/// `Linear<S, dynamic, dynamic, Bias>(in, heads * size).in_units_of(size)`; keys and values add the
/// number of query heads that read each head, `.in_units_of(size, readers)`.
///
///     HeadLinear<768, 12, 64>      query, key or value of 12 heads
///     HeadLinear<4096, 8, 128>     the 8 key heads of an attention with 32 query heads
template <std::size_t In, std::size_t Heads, std::size_t Size, bool Bias = true,
          class S = split::output>
struct HeadLinear : detail::linear_to_heads<S, In, Heads, Size, Bias> {
  static_assert(In != dynamic && Size > 0 && Heads != dynamic && Size != dynamic,
                "HeadLinear<In, Heads, Size> takes numbers: at least one feature for each head, "
                "and no `dynamic`. For sizes at run time take Linear<S, dynamic, dynamic>(in, "
                "heads * size).in_units_of(size).");

  constexpr HeadLinear() : Base(Base{}.in_units_of(Size)) {}

 private:
  using Base = detail::linear_to_heads<S, In, Heads, Size, Bias>;
};

namespace detail {

template <std::size_t In, std::size_t Heads, std::size_t Size, bool Bias, class S>
inline constexpr bool runs_as_dynamic<HeadLinear<In, Heads, Size, Bias, S>> = true;

}  // namespace detail

/// "HeadLinear<768, 12, 64>".
template <std::size_t In, std::size_t Heads, std::size_t Size, bool Bias, class S>
struct NameOf<HeadLinear<In, Heads, Size, Bias, S>> {
  static std::string name() {
    return detail::sentence(
        {"HeadLinear<", detail::size_name(In), ", ", Heads, ", ", Size, Bias ? ">" : ", no bias>"});
  }
};

}  // namespace shardwise

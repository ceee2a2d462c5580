#pragma once
// Finds the input that has a NaN or an infinity, or the layer that makes one.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/redistribute/number.hpp"

namespace shardwise::detail {

/// 1 for a value that is not finite.
template <class T>
struct IsNotFinite {
  const T* values;
  constexpr std::uint8_t operator()(std::size_t i) const {
    using A = accumulate_t<T>;
    const A value = static_cast<A>(values[i]);
    const A largest = std::numeric_limits<A>::max();
    return value >= -largest && value <= largest ? 0 : 1;
  }
};

/// Whether the values of any rank have a NaN or an infinity.
/// sends    one uint8 all-reduce
template <class B, Communicator C, Element T>
[[gnu::cold]] bool any_is_not_finite(B& backend, Pool& pool, C& ranks, std::span<const T> values) {
  const auto mine = reduced(backend, pool, values.size(), std::uint8_t{0},
                            IsNotFinite<T>{values.data()}, Largest{});
  return all_reduced(backend, pool, ranks, mine, Reduction::max) != 0;
}

/// Throws numeric_error on every rank if the values of any rank have a NaN or an infinity; `what`
/// names the values in the message.
/// sends    one uint8 all-reduce
template <class B, Communicator C, Element T>
[[gnu::cold]] void require_finite(B& backend, Pool& pool, C& ranks, std::span<const T> values,
                                  std::string_view what) {
  if (!any_is_not_finite(backend, pool, ranks, values)) return;
  throw numeric_error(
      {what,
       " holds a NaN or an infinity, and nothing before it does. "
       "Look at its input's range, at the initial weights, and try a smaller learning rate"});
}

/// Element `number` of a tensor, for messages: "row 6, feature 4". A row is one of the batch.
[[gnu::cold]] std::string element_text(const Shape& shape, std::size_t number);

/// Throws numeric_error on every rank if `input` has a NaN or an infinity on any rank, and says
/// where the lowest such rank has its first one. Whole numbers are finite. `suffix` follows "the
/// input" in the message, which ends with `of_layer`, the first layer's error: a layer need not
/// read every element, such as those of padding.
/// sends    one uint8 all-reduce; if it throws, also two of one double
template <class B, Communicator C, Element T, Layout L>
[[gnu::cold]] void require_finite_input(B& backend, Pool& pool, C& ranks,
                                        const View<const T, L>& input, const std::string& suffix,
                                        std::string_view of_layer) {
  if constexpr (Real<T>) {
    if (!any_is_not_finite(backend, pool, ranks, input.span())) return;
    const Buffer memory = pool.take_on_host(input.size() * sizeof(T));
    auto* const here = static_cast<T*>(memory.data());
    to_host(backend, input.data(), input.size(), here);
    // Twice its number in the whole tensor, and 1 for a NaN; -1: none. A double, because
    // the code that reduces it is compiled for losses in any case.
    double first = -1;
    const IsNotFinite<T> is_not_finite{here};
    for (std::size_t i = 0; i < input.size() && first < 0; ++i) {
      const auto value = static_cast<accumulate_t<T>>(here[i]);
      if (is_not_finite(i) != 0)
        first = static_cast<double>(2 * number_in_whole(input, i) + (value != value ? 1U : 0U));
    }
    const int rank = ranks.rank();
    const double holder =
        all_reduced(backend, pool, ranks, static_cast<double>(first >= 0 ? rank : ranks.size()),
                    Reduction::min);
    const auto found = static_cast<std::size_t>(
        all_reduced(backend, pool, ranks, holder == rank ? first : 0, Reduction::max));
    throw numeric_error({"the input", suffix, " holds ", found % 2 == 1 ? "a NaN" : "an infinity",
                         " in ", element_text(input.global(), found / 2), ", on rank ",
                         static_cast<int>(holder),
                         ". Look at the data, and at what normalises them. If no layer reads that "
                         "element, look here: ",
                         of_layer});
  }
}

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE std::string element_text(const Shape& shape, std::size_t number) {
  std::string text;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    const std::size_t index = number / shape.elements(i + 1, shape.rank()) % shape[i].extent();
    const auto axis = shape[i].axis == Axis::batch ? std::string_view("row") : name(shape[i].axis);
    append(text, {text.empty() ? "" : ", ", axis, " ", index});
  }
  return text;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

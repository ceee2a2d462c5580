#pragma once
// Models whose logits are those of the last tokens alone.

#include <cstddef>
#include <utility>

#include "shardwise/layers/end_rows.hpp"
#include "shardwise/model/sequential.hpp"

namespace shardwise {

/// The same model with logits [batch, vocabulary], of the last token of each sample: it has a
/// `LastRows` in front of its last layer, which makes the logits. To write a text no others are
/// needed, and those of a prompt of 2048 tokens would be 2048 times as many. Parameters are the
/// same, in the same order.
///
///     const auto net = last_logits(llama(config));
template <class... Ls>
constexpr auto last_logits(const Sequential<Ls...>& model) {
  constexpr std::size_t last = sizeof...(Ls) - 1;
  return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
    return Sequential(model.template layer<Is>()..., LastRows{}, model.template layer<last>());
  }
  (std::make_index_sequence<last>{});
}

}  // namespace shardwise

#pragma once
// The block of transformers that normalise in front of attention and perceptron.

#include <cstddef>

#include "shardwise/core/shape.hpp"
#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/row_norm.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/models/checks.hpp"

namespace shardwise::detail {

/// x = x + attention(norm(x)), x = x + down(F(up(norm(x)))), of the sizes `features`, `hidden`,
/// `heads` and `epsilon` in `config`. What each of the two adds is dropped as the weights of
/// attention are.
/// throws   argument_error, which names `model`, if `heads` does not divide `features`
template <class Parallel, AttentionForm Attention, class F, class Config>
constexpr auto pre_norm_block(const char* model, const Config& config) {
  using First = Linear<typename Parallel::first, dynamic, dynamic>;
  using Second = Linear<typename Parallel::second, dynamic, dynamic>;
  using Dropped = Dropout<Attention.dropped, Attention.of>;
  const std::size_t wide = config.features;
  require_heads(model, wide, config.heads);
  const LayerNorm<dynamic> norm(wide, Epsilon{config.epsilon});
  const First heads = First(wide, wide).in_units_of(wide / config.heads);
  const auto attend = Attend<Attention>{}.with_heads(config.heads);
  return Sequential(
      Residual(Sequential(norm, Join(attend, heads, heads, heads), Second(wide, wide), Dropped{})),
      Residual(Sequential(norm, First(wide, config.hidden), F{}, Second(config.hidden, wide),
                          Dropped{})));
}

}  // namespace shardwise::detail

#pragma once
// A small GPT-2 and its text, in a tensor, a sequence and a context plan.

#include <cstddef>
#include <cstdint>

#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/head_linear.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/position_embedding.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/model/tied.hpp"
#include "shardwise/models/parallelism.hpp"

namespace testing::gpt {

using namespace shardwise;

inline constexpr std::size_t vocabulary = 13, wide = 12, heads = 6, size = 2, positions = 11;

template <class P, std::size_t Count, bool Bias>
using Heads = HeadLinear<wide, Count, size, Bias, typename P::first>;

/// Of weights and of outputs, `Dropped` tenths are dropped.
template <class P, std::size_t Groups, std::uint32_t Dropped>
using Gpt2Attention =
    Join<Attend<AttentionForm{.readers = heads / Groups, .dropped = Dropped, .of = 10}>,
         Heads<P, heads, true>, Heads<P, Groups, true>, Heads<P, Groups, true>>;

template <class P, std::size_t Groups, std::uint32_t Dropped>
struct Gpt2Block
    : Sequential<
          Residual<
              Sequential<LayerNorm<wide>, Gpt2Attention<P, Groups, Dropped>,
                         Linear<typename P::second, heads * size, wide>, Dropout<Dropped, 10>>>,
          Residual<Sequential<LayerNorm<wide>, Linear<typename P::first, wide, 4 * wide>, GeluTanh,
                              Linear<typename P::second, 4 * wide, wide>, Dropout<Dropped, 10>>>> {
};

struct Tokens;

template <class P, std::size_t Groups, std::uint32_t Dropped>
struct Gpt2 : Sequential<Owns<Tokens, Embedding<vocabulary, wide, typename P::first>>,
                         PositionEmbedding<positions, wide>, To<typename P::stream>,
                         Repeat<2, Gpt2Block<P, Groups, Dropped>>, LayerNorm<wide>,
                         Borrows<Tokens, Linear<typename P::first, wide, vocabulary, false>>> {};

inline constexpr Shape text{{Axis::batch, 2}, {Axis::sequence, positions}};

/// Of the text.
constexpr std::int32_t token(std::size_t i) {
  return static_cast<std::int32_t>(i * i % vocabulary);
}

}  // namespace testing::gpt

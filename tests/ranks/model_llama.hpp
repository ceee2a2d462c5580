#pragma once
// Small models of the Llama family, in a tensor plan.

#include <cstddef>
#include <type_traits>

#include "shardwise/backend/activation.hpp"
#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/head_linear.hpp"
#include "shardwise/layers/head_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/layers/rope.hpp"
#include "shardwise/layers/times.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"

namespace testing::llama {

using namespace shardwise;

inline constexpr std::size_t vocabulary = 13, wide = 16, heads = 4, groups = 2, size = 4,
                             hidden = 10, blocks = 2;

/// In what members of the family differ.
struct Form {
  bool bias = false;        ///< of queries, keys and values
  bool head_norms = false;  ///< of queries and keys
  bool scaled = false;      ///< the frequencies of positions, as Llama 3 does
  std::size_t window = 0;   ///< as AttentionForm says
};

struct ScaledRope : Rope {
  constexpr ScaledRope() : Rope(RopeOptions{.scaling = RopeScaling::llama3(8, 1, 4, 16)}) {}
};

template <Form F, std::size_t Count>
using Heads = HeadLinear<wide, Count, size, F.bias>;

template <Form F>
using Turned = std::conditional_t<F.scaled, ScaledRope, Rope>;

template <Form F, std::size_t Count>
using TurnedHeads =
    std::conditional_t<F.head_norms, Sequential<Heads<F, Count>, HeadNorm<size>, Turned<F>>,
                       Sequential<Heads<F, Count>, Turned<F>>>;

template <Form F>
using Attention =
    Sequential<RmsNorm<wide>,
               Join<Attend<AttentionForm{.readers = heads / groups, .window = F.window}>,
                    TurnedHeads<F, heads>, TurnedHeads<F, groups>, Heads<F, groups>>,
               RowParallelLinear<heads * size, wide, false>>;

using Gated = Join<Times<activations::Silu>, ColumnParallelLinear<wide, hidden, false>,
                   ColumnParallelLinear<wide, hidden, false>>;

using Perceptron = Sequential<RmsNorm<wide>, Gated, RowParallelLinear<hidden, wide, false>>;

template <Form F>
struct Block : Sequential<Residual<Attention<F>>, Residual<Perceptron>> {};

template <Form F>
struct Llama : Sequential<Embedding<vocabulary, wide, split::output>, Repeat<blocks, Block<F>>,
                          RmsNorm<wide>, ColumnParallelLinear<wide, vocabulary, false>> {};

}  // namespace testing::llama

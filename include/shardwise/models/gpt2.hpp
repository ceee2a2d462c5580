#pragma once
// GPT-2.

#include <cstddef>
#include <cstdint>

#include "shardwise/core/shape.hpp"
#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/position_embedding.hpp"
#include "shardwise/layers/row_norm.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/model/tied.hpp"
#include "shardwise/models/parallelism.hpp"
#include "shardwise/models/pre_norm_block.hpp"

namespace shardwise {

/// What the type of a GPT-2 says: in training `dropped` in `of` are set to 0, of the first stream,
/// of the weights of attention, and of what each attention and perceptron adds to the stream.
struct Gpt2Form {
  std::uint32_t dropped = 0;  ///< see above
  std::uint32_t of = 1;       ///< see above
};

/// The sizes of a GPT-2.
struct Gpt2Config {
  std::size_t vocabulary = 0;  ///< tokens
  std::size_t positions = 0;   ///< tokens of the longest sequence
  std::size_t features = 0;    ///< of a token; a multiple of `heads`
  std::size_t hidden = 0;      ///< features of the perceptron
  std::size_t heads = 0;       ///< of an attention
  std::size_t layers = 0;      ///< blocks
  double epsilon = 1e-5;       ///< of norms
};

namespace detail {

struct Gpt2Table;

}  // namespace detail

/// A GPT-2: token ids [batch, sequence] to logits [batch, sequence, vocabulary]. Its ends are
/// `Ends<typename Parallel::ids, typename Parallel::logits>`.
///
///     x = x + attention(norm(x)), x = x + down(gelu(up(norm(x)))), in each block
///
/// `Blocks` is the number of blocks if the type is to have it, as stages of a pipeline need; the
/// blocks are part 4.
/// throws   argument_error if `heads` does not divide `features`, or `layers` is not `Blocks`
/// source   Radford et al. 2019, section 2.3
template <class Parallel = TensorParallel, Gpt2Form Form = Gpt2Form{}, std::size_t Blocks = dynamic>
auto gpt2(const Gpt2Config& config) {
  using Table = Embedding<dynamic, dynamic, typename Parallel::first>;
  using Logits = Linear<typename Parallel::first, dynamic, dynamic, false>;
  constexpr AttentionForm attention{.dropped = Form.dropped, .of = Form.of};
  const std::size_t wide = config.features;
  const auto block = detail::pre_norm_block<Parallel, attention, GeluTanh>("gpt2", config);
  return Sequential(Owns<detail::Gpt2Table, Table>(Table(config.vocabulary, wide)),
                    PositionEmbedding<dynamic, dynamic>(config.positions, wide),
                    To<typename Parallel::stream>{}, Dropout<Form.dropped, Form.of>{},
                    detail::repeated<Blocks>(config.layers, block),
                    LayerNorm<dynamic>(wide, Epsilon{config.epsilon}),
                    Borrows<detail::Gpt2Table, Logits>(Logits(wide, config.vocabulary)));
}

}  // namespace shardwise

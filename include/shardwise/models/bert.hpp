#pragma once
// BERT with the head of its training, which guesses masked tokens.

#include <cstddef>
#include <cstdint>

#include "shardwise/core/shape.hpp"
#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/bias.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/position_embedding.hpp"
#include "shardwise/layers/row_norm.hpp"
#include "shardwise/layers/split.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/model/composition.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/model/sum.hpp"
#include "shardwise/model/tied.hpp"
#include "shardwise/models/checks.hpp"
#include "shardwise/models/parallelism.hpp"

namespace shardwise {

/// What the type of a BERT says: in training `dropped` in `of` are set to 0, of the first stream,
/// of the weights of attention, and of what each attention and perceptron adds to the stream.
struct BertForm {
  std::uint32_t dropped = 0;  ///< see above
  std::uint32_t of = 1;       ///< see above
};

/// The sizes of a BERT.
struct BertConfig {
  std::size_t vocabulary = 0;  ///< tokens
  std::size_t positions = 0;   ///< tokens of the longest sample
  std::size_t types = 2;       ///< of tokens, such as those of a first and of a second sentence
  std::size_t features = 0;    ///< of a token; a multiple of `heads`
  std::size_t hidden = 0;      ///< features of the perceptron
  std::size_t heads = 0;       ///< of an attention
  std::size_t layers = 0;      ///< blocks
  double epsilon = 1e-12;      ///< of norms
};

/// The layouts at the ends of a BERT: of token ids and of token types, and of the logits.
template <class Parallel>
using BertEnds =
    Ends<Layouts<typename Parallel::ids, typename Parallel::stream>, typename Parallel::logits>;

namespace detail {

struct BertTable;

template <class Parallel, BertForm Form>
auto bert_block(const BertConfig& config) {
  using First = Linear<typename Parallel::first, dynamic, dynamic>;
  using Second = Linear<typename Parallel::second, dynamic, dynamic>;
  using Dropped = Dropout<Form.dropped, Form.of>;
  const std::size_t wide = config.features;
  constexpr AttentionForm attention{.causal = false, .dropped = Form.dropped, .of = Form.of};
  const LayerNorm<dynamic> norm(wide, Epsilon{config.epsilon});
  const First heads = First(wide, wide).in_units_of(wide / config.heads);
  const auto attend = Attend<attention>{}.with_heads(config.heads);
  return Sequential(
      Residual(Sequential(Join(attend, heads, heads, heads), Second(wide, wide), Dropped{})), norm,
      Residual(
          Sequential(First(wide, config.hidden), Gelu{}, Second(config.hidden, wide), Dropped{})),
      norm);
}

}  // namespace detail

/// A BERT: token ids and token types, both [batch, sequence], to logits [batch, sequence,
/// vocabulary]. It has two inputs, and its ends are `BertEnds<Parallel>`:
///
///     model.forward(std::tuple(ids.view(), types.view()), {.segments = segments})
///
///     x = norm(words[id] + positions[position] + types[type])
///     x = norm(x + attention(x)), x = norm(x + down(gelu(up(x)))), in each block
///     logits = norm(gelu(dense(x))) wordsᵀ + bias
///
/// Each token sees all tokens of its segment, and none sees padding: tokens in no `Segment`. All
/// ranks compute `dense` for the tokens of their stream, which sends nothing.
///
/// `Blocks` is the number of blocks if the type is to have it, as stages of a pipeline need; the
/// blocks are part 5.
/// throws   argument_error if `heads` does not divide `features`, or `layers` is not `Blocks`
/// source   Devlin et al. 2019, sections 3 and A.2
template <class Parallel = TensorParallel, BertForm Form = BertForm{}, std::size_t Blocks = dynamic>
auto bert(const BertConfig& config) {
  using Words = Owns<detail::BertTable, Embedding<dynamic, dynamic, typename Parallel::first>>;
  using Types = Embedding<dynamic, dynamic, split::none>;
  using Dense = Linear<split::none, dynamic, dynamic>;
  using Logits = Linear<typename Parallel::first, dynamic, dynamic, false>;
  const std::size_t wide = config.features;
  detail::require_heads("bert", wide, config.heads);
  const LayerNorm<dynamic> norm(wide, Epsilon{config.epsilon});
  const Sequential words(Words(config.vocabulary, wide),
                         PositionEmbedding<dynamic, dynamic>(config.positions, wide),
                         To<typename Parallel::stream>{});
  using Dropped = Dropout<Form.dropped, Form.of>;
  const auto encoder =
      detail::repeated<Blocks>(config.layers, detail::bert_block<Parallel, Form>(config));
  const Sequential head(Dense(wide, wide), Gelu{}, norm,
                        Borrows<detail::BertTable, Logits>(Logits(wide, config.vocabulary)),
                        Bias<dynamic>(config.vocabulary));
  // Types are first, so that ids that are in no table are found before anything is sent.
  return Graph<2, At<Types, 1>, At<decltype(words), 0>, At<Sum, 3, 2>, At<LayerNorm<dynamic>, 4>,
               At<Dropped, 5>, At<decltype(encoder), 6>, At<decltype(head), 7>>(
      Types(config.types, wide), words, Sum{}, norm, Dropped{}, encoder, head);
}

}  // namespace shardwise

#pragma once
// Models whose blocks compute attention and perceptron from the same input: GPT-J and Falcon.

#include <cstddef>
#include <string>
#include <type_traits>

#include "shardwise/core/sentence.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/rope.hpp"
#include "shardwise/layers/row_norm.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/model/sum.hpp"
#include "shardwise/model/tied.hpp"
#include "shardwise/models/checks.hpp"
#include "shardwise/models/parallelism.hpp"

namespace shardwise {

/// What the type of a model with parallel blocks says.
struct ParallelGptForm {
  bool two_norms = false;        ///< whether attention and perceptron have a norm each
  bool attention_bias = false;   ///< whether the linear layers of attention have a bias
  bool perceptron_bias = false;  ///< whether those of the perceptron have
  bool logits_bias = false;      ///< whether the logits have
  bool tied = false;             ///< whether the logits use the table; then they have no bias
  bool gelu_tanh = false;        ///< whether gelu is its approximation by tanh

  friend constexpr bool operator==(const ParallelGptForm&, const ParallelGptForm&) = default;
};

/// GPT-J.
inline constexpr ParallelGptForm gptj_form{
    .perceptron_bias = true, .logits_bias = true, .gelu_tanh = true};

/// Everything that describes one model with parallel blocks.
struct ParallelGptConfig {
  ParallelGptForm form{};      ///< must be that of the type
  std::size_t vocabulary = 0;  ///< tokens
  std::size_t features = 0;    ///< of a token
  std::size_t hidden = 0;      ///< features of the perceptron
  std::size_t heads = 0;       ///< of queries
  std::size_t groups = 0;      ///< heads of keys and values; a divisor of `heads`
  std::size_t head_size = 0;   ///< features of a head
  std::size_t layers = 0;      ///< blocks
  double epsilon = 1e-5;       ///< of norms
  Rope::Options rope{};        ///< of positions
};

namespace detail {

struct ParallelGptTable;

inline std::string text_of(const ParallelGptForm& form) {
  return sentence({"ParallelGptForm{.two_norms = ", flag_text(form.two_norms),
                   ", .attention_bias = ", flag_text(form.attention_bias),
                   ", .perceptron_bias = ", flag_text(form.perceptron_bias), ", .logits_bias = ",
                   flag_text(form.logits_bias), ", .tied = ", flag_text(form.tied),
                   ", .gelu_tanh = ", flag_text(form.gelu_tanh), "}"});
}

template <class Parallel, ParallelGptForm Form>
auto parallel_block(const ParallelGptConfig& config) {
  using Heads = Linear<typename Parallel::first, dynamic, dynamic, Form.attention_bias>;
  using Gathered = Linear<typename Parallel::second, dynamic, dynamic, Form.attention_bias>;
  using Up = Linear<typename Parallel::first, dynamic, dynamic, Form.perceptron_bias>;
  using Down = Linear<typename Parallel::second, dynamic, dynamic, Form.perceptron_bias>;
  const std::size_t wide = config.features, size = config.head_size;
  const LayerNorm<dynamic> norm(wide, Epsilon{config.epsilon});
  const Heads queries = Heads(wide, config.heads * size).in_units_of(size);
  const Heads keys =
      Heads(wide, config.groups * size).in_units_of(size, config.heads / config.groups);
  const Rope rope(config.rope);

  using Attention = Attend<AttentionForm{.readers = dynamic}>;
  const auto attention =
      Sequential(Join(Attention{}, Sequential(queries, rope), Sequential(keys, rope), keys),
                 Gathered(config.heads * size, wide));
  const Sequential perceptron(Up(wide, config.hidden),
                              std::conditional_t<Form.gelu_tanh, GeluTanh, Gelu>{},
                              Down(config.hidden, wide));
  if constexpr (Form.two_norms) {
    return Residual(Join(PartialSum{}, Sequential(norm, attention), Sequential(norm, perceptron)));
  } else {
    return Residual(Sequential(norm, Join(PartialSum{}, attention, perceptron)));
  }
}

}  // namespace detail

/// A model whose blocks are parallel: token ids [batch, sequence] to logits [batch, sequence,
/// vocabulary]. Its ends are `Ends<typename Parallel::ids, typename Parallel::logits>`.
///
///     x = x + attention(norm(x)) + perceptron(norm(x)), in each block
///
/// Ranks sum the outputs of attention and perceptron as one, and with one norm also the gradients
/// of their inputs: half the all-reduces of a block in which one follows the other.
///
/// `Blocks` is the number of blocks if the type is to have it, as stages of a pipeline need; the
/// blocks are part 2.
/// throws   argument_error if the form of the type is not that of `config`, `groups` does not
///          divide `heads`, or `layers` is not `Blocks`
/// source   Wang and Komatsuzaki 2021 (GPT-J); Almazrouei et al. 2023 (Falcon), section 3.2
template <class Parallel = TensorParallel, ParallelGptForm Form = gptj_form,
          std::size_t Blocks = dynamic>
auto parallel_gpt(const ParallelGptConfig& config) {
  static_assert(!(Form.tied && Form.logits_bias),
                "ParallelGptForm: logits that use the table have no bias.");
  using Logits = Linear<typename Parallel::first, dynamic, dynamic, Form.logits_bias>;
  using Table = Embedding<dynamic, dynamic, typename Parallel::first>;
  detail::require_groups("parallel_gpt", config.heads, config.groups);
  detail::require_form("parallel_gpt", detail::text_of(Form), detail::text_of(config.form));
  const std::size_t wide = config.features;
  const To<typename Parallel::stream> stream;
  const auto blocks =
      detail::repeated<Blocks>(config.layers, detail::parallel_block<Parallel, Form>(config));
  const LayerNorm<dynamic> norm(wide, Epsilon{config.epsilon});
  const Table table(config.vocabulary, wide);
  const Logits logits(wide, config.vocabulary);
  if constexpr (Form.tied) {
    return Sequential(Owns<detail::ParallelGptTable, Table>(table), stream, blocks, norm,
                      Borrows<detail::ParallelGptTable, Logits>(logits));
  } else {
    return Sequential(table, stream, blocks, norm, logits);
  }
}

}  // namespace shardwise

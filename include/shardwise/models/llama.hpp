#pragma once
// Models of the Llama family: Llama, Mistral, Mixtral, Phi-3, Qwen2 and Qwen3.

#include <cstddef>
#include <string>

#include "shardwise/backend/activation.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/experts.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/head_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/layers/rope.hpp"
#include "shardwise/layers/row_norm.hpp"
#include "shardwise/layers/sized.hpp"
#include "shardwise/layers/times.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/model/tied.hpp"
#include "shardwise/models/checks.hpp"
#include "shardwise/models/parallelism.hpp"

namespace shardwise {

/// What the type of a Llama says.
struct LlamaForm {
  bool bias = false;             ///< whether queries, keys and values have a bias, as in Qwen2
  bool output_bias = false;      ///< whether the last linear layer of attention has one
  bool perceptron_bias = false;  ///< whether the linear layers of a perceptron have
  bool head_norms = false;       ///< whether each query and key is normalised, as in Qwen3
  bool tied = false;             ///< whether the logits use the table of the embedding
  bool experts = false;          ///< whether blocks end in a mixture of experts, as in Mixtral
  bool balanced = false;         ///< whether each mixture has a balancing loss in training
  std::size_t window = 0;    ///< tokens that a token sees, with itself; 0 for all before it; in a
                             ///< type also `dynamic`, for the window of the config
  bool two_windows = false;  ///< whether blocks have two windows in turn, those of the config, as
                             ///< some Qwen2 and Qwen3; then `window` is `dynamic`

  friend constexpr bool operator==(const LlamaForm&, const LlamaForm&) = default;
};

/// Blocks in a row that have the same window.
struct LlamaRun {
  std::size_t layers = 0;  ///< blocks
  std::size_t window = 0;  ///< tokens that a token sees, with itself; 0 for all before it
};

/// Everything that describes one model of the family.
struct LlamaConfig {
  LlamaForm form{};            ///< must be that of the type, which may leave its window `dynamic`
  std::size_t vocabulary = 0;  ///< tokens
  std::size_t features = 0;    ///< of a token
  std::size_t hidden = 0;      ///< features of the perceptron, or of each expert
  std::size_t experts = 0;     ///< of a block, if it has any
  std::size_t chosen = 0;      ///< experts of a token
  double balance = 0;          ///< coefficient of the balancing loss of each mixture
  std::size_t heads = 0;       ///< of queries
  std::size_t groups = 0;      ///< heads of keys and values; a divisor of `heads`
  std::size_t head_size = 0;   ///< features of a head
  std::size_t layers = 0;      ///< blocks
  LlamaRun turn[2] = {};  ///< with `form.two_windows`: so many blocks of the first, then of the
                          ///< second, and so on until all are there
  double epsilon = 1e-5;  ///< of norms
  Rope::Options rope{};   ///< of positions
  bool fused = false;     ///< whether files have q, k, v in one weight, and gate and factor
};

namespace detail {

struct LlamaTable;

/// The second half of a block.
template <class Parallel, LlamaForm Form>
auto llama_perceptron(const LlamaConfig& config, const RmsNorm<dynamic>& norm) {
  if constexpr (Form.experts) {
    const Experts<typename Parallel::experts> experts(
        {config.experts, config.chosen, config.features, config.hidden});
    if constexpr (Form.balanced) {
      return Sequential(norm, experts.balanced_by(config.balance));
    } else {
      return Sequential(norm, experts);
    }
  } else {
    using First = Linear<typename Parallel::first, dynamic, dynamic, Form.perceptron_bias>;
    using Second = Linear<typename Parallel::second, dynamic, dynamic, Form.perceptron_bias>;
    const First up(config.features, config.hidden);
    return Sequential(norm, Join(Times<activations::Silu>{}, up, up),
                      Second(config.hidden, config.features));
  }
}

inline std::string text_of(const LlamaForm& form) {
  return sentence(
      {"LlamaForm{.bias = ", flag_text(form.bias), ", .output_bias = ", flag_text(form.output_bias),
       ", .perceptron_bias = ", flag_text(form.perceptron_bias),
       ", .head_norms = ", flag_text(form.head_norms), ", .tied = ", flag_text(form.tied),
       ", .experts = ", flag_text(form.experts), ", .balanced = ", flag_text(form.balanced),
       ", .window = ", size_name(form.window), ", .two_windows = ", flag_text(form.two_windows),
       "}"});
}

/// The form that a type must have for this config, where it leaves its window `dynamic` or not.
constexpr LlamaForm form_for(const LlamaConfig& config, bool any_window) {
  LlamaForm form = config.form;
  if (any_window) form.window = dynamic;
  return form;
}

/// The same as text, which says how layers differ.
inline std::string text_of_form_for(const LlamaConfig& config, bool any_window) {
  std::string text = text_of(form_for(config, any_window));
  if (!config.form.two_windows) return text;
  text += " for layers in turn:";
  for (const LlamaRun& run : config.turn) {
    append(text, {&run == config.turn ? " " : ", then ", run.layers});
    if (run.window == 0) {
      text += " without a window";
    } else {
      append(text, {" with a window of ", run.window});
    }
  }
  return text;
}

inline void require_llama_form(const LlamaForm& type, const LlamaConfig& config) {
  const bool any_window = type.window == dynamic;
  if (type == form_for(config, any_window)) return;
  require_form("llama", text_of(type), text_of_form_for(config, any_window));
}

/// How often the two runs of blocks follow each other.
inline std::size_t turns_of(const LlamaConfig& config) {
  const auto& [first, second] = config.turn;
  const std::size_t turn = first.layers + second.layers;
  if (turn > 0 && config.layers % turn == 0) return config.layers / turn;
  throw argument_error({"llama: ", config.layers, " layers are no whole number of turns of ",
                        first.layers, " and ", second.layers, " layers"});
}

/// An attention of this form, with `window` if the form leaves it open.
template <AttentionForm Form>
auto attention_in([[maybe_unused]] std::size_t window) {
  if constexpr (Form.window == dynamic) {
    return Attend<Form>{}.with_window(window);
  } else {
    return Attend<Form>{};
  }
}

}  // namespace detail

/// A model of the Llama family: token ids [batch, sequence] to logits [batch, sequence,
/// vocabulary]. Its ends are `Ends<typename Parallel::ids, typename Parallel::logits>`.
///
///     x = x + attention(norm(x)), x = x + down(silu(gate(norm(x))) · up(norm(x))), in each block
///
/// or with `Experts` in place of the second half.
///
/// `Blocks` is the number of blocks, or with two windows that of turns, if the type is to have it,
/// as stages of a pipeline need; the blocks are part 2.
/// throws   argument_error if the form of the type is not that of `config`, `groups` does not
///          divide `heads`, `layers` is not `Blocks` or no whole number of turns, or a token cannot
///          choose `chosen` of the experts
/// source   Touvron et al. 2023, section 2.2; Jiang et al. 2023 (Mistral 7B), section 2; Jiang et
///          al. 2024 (Mixtral of experts), section 2
template <class Parallel = TensorParallel, LlamaForm Form = LlamaForm{},
          std::size_t Blocks = dynamic>
auto llama(const LlamaConfig& config) {
  static_assert(Form.experts || !Form.balanced,
                "LlamaForm: only models with experts have a balancing loss.");
  static_assert(!(Form.experts && Form.perceptron_bias), "LlamaForm: experts have no bias.");
  static_assert(!Form.two_windows || Form.window == dynamic,
                "LlamaForm: two windows are those of the config: .window = dynamic.");
  using Heads = Linear<typename Parallel::first, dynamic, dynamic, Form.bias>;
  using Output = Linear<typename Parallel::second, dynamic, dynamic, Form.output_bias>;
  using Logits = Linear<typename Parallel::first, dynamic, dynamic, false>;
  using Table = Embedding<dynamic, dynamic, typename Parallel::first>;
  detail::require_groups("llama", config.heads, config.groups);
  detail::require_llama_form(Form, config);
  const std::size_t wide = config.features, size = config.head_size;
  const RmsNorm<dynamic> norm(wide, Epsilon{config.epsilon});

  const Heads queries = Heads(wide, config.heads * size).in_units_of(size);
  const Heads keys =
      Heads(wide, config.groups * size).in_units_of(size, config.heads / config.groups);
  const auto turned = [&](const Heads& heads) {
    if constexpr (Form.head_norms) {
      return Sequential(heads, HeadNorm<dynamic>(size, Epsilon{config.epsilon}), Rope(config.rope));
    } else {
      return Sequential(heads, Rope(config.rope));
    }
  };
  constexpr AttentionForm attention{.readers = dynamic, .window = Form.window};
  const auto block = [&](std::size_t window) {
    const auto attend = detail::attention_in<attention>(window);
    return Sequential(Residual(Sequential(norm, Join(attend, turned(queries), turned(keys), keys),
                                          Output(config.heads * size, wide))),
                      Residual(detail::llama_perceptron<Parallel, Form>(config, norm)));
  };

  const To<typename Parallel::stream> stream;
  const auto blocks = [&] {
    if constexpr (Form.two_windows) {
      const auto& [first, second] = config.turn;
      const std::size_t turns = detail::turns_of(config);
      return detail::repeated<Blocks>(turns,
                                      Sequential(Repeat(first.layers, block(first.window)),
                                                 Repeat(second.layers, block(second.window))));
    } else {
      return detail::repeated<Blocks>(config.layers, block(config.form.window));
    }
  }();
  const Table table(config.vocabulary, wide);
  const Logits logits(wide, config.vocabulary);
  if constexpr (Form.tied) {
    return Sequential(Owns<detail::LlamaTable, Table>(table), stream, blocks, norm,
                      Borrows<detail::LlamaTable, Logits>(logits));
  } else {
    return Sequential(table, stream, blocks, norm, logits);
  }
}

}  // namespace shardwise

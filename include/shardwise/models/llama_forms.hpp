#pragma once
// A model of the Llama family whose form a config says at run time.

#include "shardwise/core/error.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/parallelism.hpp"

namespace shardwise {

/// Forms of which a program has a model of each.
template <LlamaForm... Forms>
struct LlamaForms {};

/// The forms that files of Llama, Mistral, Phi-3, Qwen2 and Qwen3 have, with any window. Others are
/// `LlamaForm{.experts = true, .window = dynamic}`, of Mixtral, those with more biases, of files
/// that have `attention_bias` or `mlp_bias`, and those with `two_windows`.
using DenseLlamaForms =
    LlamaForms<LlamaForm{.window = dynamic}, LlamaForm{.tied = true, .window = dynamic},
               LlamaForm{.bias = true, .window = dynamic},
               LlamaForm{.bias = true, .tied = true, .window = dynamic},
               LlamaForm{.head_norms = true, .window = dynamic},
               LlamaForm{.head_norms = true, .tied = true, .window = dynamic}>;

namespace detail {

/// Calls f with the model if its type may have this form.
template <class Parallel, LlamaForm Form, class F>
bool called_with_llama(const LlamaConfig& config, F& f) {
  if (Form != form_for(config, Form.window == dynamic)) return false;
  f(llama<Parallel, Form>(config));
  return true;
}

template <class Parallel, LlamaForm... Forms, class F>
void with_llama_of(LlamaForms<Forms...>, const LlamaConfig& config, F& f) {
  if ((called_with_llama<Parallel, Forms>(config, f) || ...)) return;
  throw argument_error({"llama: this model needs the ", text_of_form_for(config, false),
                        ", which is none of the ", sizeof...(Forms),
                        " forms that the program has; add it to its LlamaForms"});
}

}  // namespace detail

/// Calls f(net), where net is `llama<Parallel, Form>(config)` and Form is the first of `Forms` that
/// is the config's:
///
///     with_llama(read_llama_config(directory), [&](const auto& net) { ... });
///
/// The type of net is another one for each form, so the compiler makes f once for each.
/// throws   argument_error if none of the forms is that of the config; as llama, and as f
template <class Parallel = TensorParallel, class Forms = DenseLlamaForms, class F>
void with_llama(const LlamaConfig& config, F&& f) {
  detail::with_llama_of<Parallel>(Forms{}, config, f);
}

}  // namespace shardwise

// The form of a model that a config chooses at run time.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <type_traits>

#include "shardwise/core/error.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/llama_forms.hpp"
#include "shardwise/models/parallelism.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::message_of;

namespace {

LlamaConfig small(const LlamaForm& form) {
  return {.form = form,
          .vocabulary = 17,
          .features = 12,
          .hidden = 16,
          .experts = form.experts ? 3U : 0U,
          .chosen = form.experts ? 2U : 0U,
          .heads = 6,
          .groups = 2,
          .head_size = 2,
          .layers = 2};
}

template <class Parallel, LlamaForm Form>
using Made = decltype(llama<Parallel, Form>(LlamaConfig{}));

/// How often f was called, and how often with the model of this form.
struct Calls {
  int all = 0, right = 0;
};

template <LlamaForm Form, class Parallel = TensorParallel, class Forms = DenseLlamaForms>
void check_chosen(const LlamaForm& form) {
  Calls calls;
  with_llama<Parallel, Forms>(small(form), [&](const auto& net) {
    ++calls.all;
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(net)>, Made<Parallel, Form>>)
      ++calls.right;
  });
  CHECK(calls.all == 1);
  CHECK(calls.right == 1);
}

}  // namespace

TEST_CASE("the form of the config is that of the model, with any window") {
  for (const std::size_t window : {std::size_t{0}, std::size_t{4}, std::size_t{4096}}) {
    check_chosen<LlamaForm{.window = dynamic}>({.window = window});
    check_chosen<LlamaForm{.tied = true, .window = dynamic}>({.tied = true, .window = window});
    check_chosen<LlamaForm{.bias = true, .window = dynamic}>({.bias = true, .window = window});
    check_chosen<LlamaForm{.bias = true, .tied = true, .window = dynamic}>(
        {.bias = true, .tied = true, .window = window});
    check_chosen<LlamaForm{.head_norms = true, .window = dynamic}>(
        {.head_norms = true, .window = window});
    check_chosen<LlamaForm{.head_norms = true, .tied = true, .window = dynamic}>(
        {.head_norms = true, .tied = true, .window = window});
  }
}

TEST_CASE("a program may have other forms, in another plan") {
  constexpr LlamaForm four{.window = 4}, mixtral{.experts = true, .window = dynamic};
  using Own = LlamaForms<four, LlamaForm{.window = dynamic}, mixtral>;
  check_chosen<four, ContextParallel, Own>({.window = 4});
  check_chosen<LlamaForm{.window = dynamic}, ContextParallel, Own>({.window = 5});
  check_chosen<mixtral, ContextParallel, Own>({.experts = true, .window = 6});
}

TEST_CASE("a form that the program does not have is an error") {
  const auto refused = [](const LlamaForm& form) {
    return message_of<argument_error>([&] { with_llama(small(form), [](const auto&) {}); });
  };
  check_mentions(refused({.experts = true, .window = 4}),
                 {".experts = true", ".window = 4, ", "none of the 6 forms", "add it"});
  check_mentions(refused({.bias = true, .head_norms = true}), {".head_norms = true"});
}

TEST_CASE("a type with any window must have the rest of the form") {
  const std::string refused = message_of<argument_error>([] {
    llama<TensorParallel, LlamaForm{.window = dynamic}>(small({.tied = true, .window = 4}));
  });
  check_mentions(refused,
                 {"the type has the", ".tied = false", ".window = dynamic, .two_windows = false}",
                  "this model needs the", ".tied = true"});
}

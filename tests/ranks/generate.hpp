#pragma once
// A small Llama that writes, and what it must write: the tokens for which it reads all that stand
// before them again, on one rank and without a cache.

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/generate/generator.hpp"
#include "shardwise/generate/sampler.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/models/llama.hpp"
#include "shardwise/models/parallelism.hpp"

namespace testing::text {

using namespace shardwise;

using Tokens = std::vector<std::int32_t>;

inline constexpr std::int32_t vocabulary = 17;
inline constexpr Shape any_text{{Axis::batch, dynamic}, {Axis::sequence, dynamic}};

/// 6 query heads that read 2 key heads. Without `Window` tokens see all before them; `dynamic` is
/// one of 3 tokens.
template <class Parallel, std::size_t Window>
auto network() {
  constexpr LlamaForm form{.window = Window};
  return llama<Parallel, form>({.form = {.window = Window == dynamic ? 3 : Window},
                                .vocabulary = vocabulary,
                                .features = 12,
                                .hidden = 16,
                                .heads = 6,
                                .groups = 2,
                                .head_size = 4,
                                .layers = 2});
}
template <class Parallel, std::size_t Window>
using Network = std::remove_const_t<decltype(network<Parallel, Window>())>;

/// Models of all numbers of ranks have the same weights.
template <class T, std::size_t Window, class B, class C, class Parallel = TensorParallel,
          Layout Logits = Invariant>
struct Writer
    : Model<Network<Parallel, Window>, Context<T, B, C>, Ends<Invariant, Logits>, ForwardOnly> {
  explicit Writer(C& ranks, Seed seed = Seed{3})
      : Writer::Model(network<Parallel, Window>(), ranks, seed, any_text) {}
  Writer(C& ranks, B& backend)
      : Writer::Model(network<Parallel, Window>(), ranks, Seed{3}, any_text, backend) {}
};

/// `count` tokens behind the prompt of sequence `number`.
template <class T, std::size_t Window>
Tokens expected(Tokens text, std::size_t number, std::size_t count, const Sampling& sampling) {
  SingleRank alone;
  Writer<T, Window, Reference, SingleRank> model(alone);
  Sampler sampler(sampling);
  for (; count > 0; --count) {
    const Shape shape{{Axis::batch, 1}, {Axis::sequence, text.size()}};
    const auto logits =
        model.evaluate(View<const std::int32_t, Invariant>(text.data(), shape, Place{}));
    text.push_back(sampler.pick(logits.span().last(vocabulary), number, text.size()));
  }
  return text;
}

/// A prompt of `size` tokens.
inline Tokens prompt(std::size_t size, std::int32_t first = 1) {
  Tokens tokens{first};
  while (tokens.size() < size) tokens.push_back((tokens.back() * 5 + 3) % vocabulary);
  return tokens;
}

/// The tokens of a sequence.
template <class M>
Tokens text_of(const Generator<M>& generator, std::size_t number) {
  const auto tokens = generator.tokens(number);
  return {tokens.begin(), tokens.end()};
}

/// The texts of three sequences that begin and end at different times, in a generator with two
/// places, and what the steps returned of each. The prompt of the third one is read beside the
/// second text, for longer than that is written if pieces are small.
struct Texts {
  Tokens texts[3];
  Tokens generated[3];
};

inline const Tokens prompts[] = {prompt(5), prompt(1, 4), prompt(11, 2)};
inline constexpr std::size_t written[] = {4, 8, 6};  // tokens behind each prompt

template <class M>
Texts write(M& model, const Sampling& sampling, std::size_t piece) {
  Generator generator(model, {.sequences = 2, .tokens = 18}, sampling, piece);
  Texts of;
  const auto steps = [&](int count) {
    for (; count > 0; --count)
      for (const Generated& one : generator.step()) of.generated[one.sequence].push_back(one.id);
  };
  const auto finish = [&](std::size_t number) {
    of.texts[number] = text_of(generator, number);
    generator.end(number);
  };
  generator.add(prompts[0]);
  steps(2);
  generator.add(prompts[1]);
  steps(2);
  finish(0);
  generator.add(prompts[2]);  // takes its place
  steps(6);
  finish(1);
  while (generator.tokens(2).size() < prompts[2].size() + written[2]) steps(1);
  finish(2);
  return of;
}

}  // namespace testing::text

#pragma once
// A GPT-2 of 124 million parameters that has read texts and reads the next token of each.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "models/gpt_model.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/model/key_value_cache.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/shardwise.hpp"

namespace bench {

/// 12 blocks of 12 heads and 768 features.
inline constexpr GptSizes gpt2_sizes{50257, 768, 4 * 768, 12, 12, 1, 1024};

/// Some sequences of random tokens: what is read beforehand, in pieces [sequence, token], and the
/// token behind it.
struct Text {
  static constexpr std::size_t pieces = 8;

  explicit Text(std::size_t of_sequences, std::size_t tokens)
      : sequences(of_sequences), behind(tokens) {
    const GptBatch random(
        {.vocabulary = gpt2_sizes.vocabulary, .samples = sequences, .tokens = behind + 1});
    ids = random.ids;
    for (std::size_t sequence = 0; sequence < sequences; ++sequence) {
      for (std::size_t i = 0; i < pieces; ++i)
        whole.insert(whole.end(), piece(i) + sequence * of_piece(),
                     piece(i) + (sequence + 1) * of_piece());
      whole.push_back(piece(pieces)[sequence]);
    }
  }

  std::size_t of_piece() const { return behind / pieces; }
  const std::int32_t* piece(std::size_t number) const {
    return ids.data() + number * of_piece() * sequences;
  }

  std::size_t sequences, behind;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> whole{};  ///< the same as [sequence, token]
};

/// The GPT on some ranks, with a cache that has read the pieces of a text.
template <class Net, class T, class C>
class Writer {
 public:
  using Logits = sw::Sharded<sw::Axis::feature>;
  using Model = sw::Model<Net, sw::Context<T, sw::OneDnn, C>, sw::Ends<sw::Invariant, Logits>,
                          sw::ForwardOnly>;

  Writer(const Net& net, C& ranks, const Text& text, const sw::ModelOptions& options = {})
      : model(net, ranks, sw::Seed{1},
              sw::Shape{{sw::Axis::batch, sw::dynamic}, {sw::Axis::sequence, sw::dynamic}},
              backend_, options),
        text_(text),
        place_(sw::place_of(ranks)),
        cache_({text.sequences, text.behind + 1}) {
    if (options.to_be_loaded) return;
    model.visit_parameters([](auto& p) {
      if (p.name != "0.weight") return;
      for (std::size_t i = 0; i < p.value.size(); ++i)  // as in GPT-2
        p.value.data()[i] = static_cast<T>(0.02F * static_cast<float>(p.value.data()[i]));
    });
    model.values_changed();
  }

  void read_text() {
    for (std::size_t i = 0; i < Text::pieces; ++i) evaluate(text_.piece(i), text_.of_piece());
  }
  /// Logits of the token behind the text, which is then taken back.
  void operator()() {
    logits = evaluate(text_.piece(Text::pieces), 1);
    shorten(text_.behind);
  }
  /// Logits of the whole texts, which it reads at once and then takes back.
  void read_at_once() {
    logits = evaluate(text_.whole.data(), text_.behind + 1);
    shorten(0);
  }

  /// f(name, tensor) for all parameters, each whole; a collective.
  template <class F>
  void for_each_parameter(F f) {
    std::vector<std::string> names;
    model.visit_parameters([&](auto& p) { names.push_back(p.name); });
    for (const std::string& name : names) f(name, model.gather(name));
  }

 private:
  sw::OneDnn backend_;

 public:
  Model model;
  sw::View<const T, Logits> logits;  // [sequence, 1, vocabulary]

 private:
  auto evaluate(const std::int32_t* ids, std::size_t tokens) {
    const sw::Shape shape{{sw::Axis::batch, text_.sequences}, {sw::Axis::sequence, tokens}};
    return model.evaluate({ids, shape, place_}, {.cache = &cache_});
  }
  void shorten(std::size_t tokens) {
    for (std::size_t i = 0; i < text_.sequences; ++i) cache_.shorten(i, tokens);
  }

  Text text_;
  sw::Place place_;
  sw::KeyValueCache cache_;
};

template <class T, class C, class Net>
Writer<Net, T, C> writer(const Net& net, C& ranks, const Text& text) {
  return {net, ranks, text};
}

}  // namespace bench

#pragma once
// A GPT that reads characters, as a model that trains: 6 blocks of 6 heads and 384 features, on 8
// pieces of text of 256 tokens.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/models/gpt2.hpp"
#include "shardwise/shardwise.hpp"

namespace bench {

namespace sw = shardwise;

/// Sizes of a GPT and of its batches.
struct GptSizes {
  std::size_t vocabulary = 256, features = 384, hidden = 4 * 384, heads = 6, layers = 6;
  std::size_t samples = 8, tokens = 256;  // tokens of a sample

  std::size_t rows() const { return samples * tokens; }
  sw::Shape text() const { return {{sw::Axis::batch, samples}, {sw::Axis::sequence, tokens}}; }
  sw::Gpt2Config config() const { return {vocabulary, tokens, features, hidden, heads, layers}; }
};

/// Random tokens, and the one behind each of them, which a model has to predict.
struct GptBatch {
  explicit GptBatch(const GptSizes& sizes) : ids(sizes.rows()), labels(sizes.rows()) {
    const sw::RandomStream random(sw::Seed{1}, sw::data_ordinal, 0);
    const auto token = [&](std::uint64_t i) {
      return static_cast<std::int32_t>(random.uniform(i) * static_cast<float>(sizes.vocabulary));
    };
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = token(i);
      labels[i] = token(i + 1);
    }
  }

  std::vector<std::int32_t> ids, labels;
};

/// What changes the parameters.
inline constexpr sw::AdamW gpt_rule{.learning_rate = 1e-3};

/// The GPT on some ranks, with its batch.
template <class C>
class Gpt {
 public:
  Gpt(C& ranks, const GptSizes& sizes, const GptBatch& batch)
      : ids_(batch.ids.data(), sizes.text(), sw::place_of(ranks)),
        labels_(batch.labels.data(), sizes.text(), sw::place_of(ranks)),
        model_(sw::gpt2(sizes.config()), ranks, sw::Seed{1}, sizes.text(), backend_),
        optimizer_(model_, gpt_rule) {
    auto table = model_.gather(table_name);
    for (std::size_t i = 0; i < table.size(); ++i) table.data()[i] *= 0.02F;  // as in GPT-2
    model_.set(table_name, table.view());
  }

  /// One step of training; returns the loss.
  double operator()() { return train_step(model_, ids_, labels_, sw::CrossEntropy{}, optimizer_); }

  /// f(name, tensor) for all parameters, each whole; a collective.
  template <class F>
  void for_each_parameter(F f) {
    std::vector<std::string> names;
    model_.visit_parameters([&](auto& p) { names.push_back(p.name); });
    for (const std::string& name : names) f(name, model_.gather(name));
  }

  /// All parameters, each behind the one before; a collective.
  std::vector<float> parameters() {
    std::vector<float> all;
    for_each_parameter([&](const std::string&, const auto& whole) {
      all.insert(all.end(), whole.data(), whole.data() + whole.size());
    });
    return all;
  }

 private:
  static constexpr const char* table_name = "0.weight";
  using Architecture = decltype(sw::gpt2({}));
  using Model = sw::Model<Architecture, sw::Context<float, sw::OneDnn, C>,
                          sw::Ends<sw::Invariant, sw::Sharded<sw::Axis::feature>>>;

  sw::OneDnn backend_;
  sw::View<const std::int32_t, sw::Invariant> ids_, labels_;
  Model model_;
  sw::Optimizer<sw::AdamW, Model> optimizer_;
};

}  // namespace bench

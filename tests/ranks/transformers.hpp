#pragma once
// A model of transformers, read from a directory that it writes, gives its logits, loss and
// gradients, and is written back under its names. The directories are those of
// tests/witness/make_transformers.py.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/step.hpp"
#include "support/file_tensors.hpp"
#include "support/filled.hpp"
#include "support/largest_difference.hpp"
#include "support/temporary_folder.hpp"
#include "witness/values.hpp"

namespace testing::transformers {

using namespace shardwise;
using testing::filled;
using testing::numbers_of;

inline constexpr Shape text{{Axis::batch, 2}, {Axis::sequence, 11}};

constexpr std::int32_t token(std::size_t i) { return static_cast<std::int32_t>(i * i % 13); }

inline std::filesystem::path directory(const std::string& family) {
  return std::filesystem::path(__FILE__).parent_path().parent_path() / "witness" / "values" /
         "hugging_face" / family;
}

/// The label of a row is the id of the next row, and none in rows 3 and 10 and in those that are no
/// tokens.
inline Tensor<std::int32_t, Invariant> next_tokens(Place place, bool (*is_token)(std::size_t row)) {
  return filled<std::int32_t, Invariant>(text, place, [&](std::size_t row) {
    return row == 3 || row == 10 || !is_token(row) ? -100 : token(row + 1);
  });
}

/// What a model of text in plan P reads and learns; every row is a token.
template <class P>
class Text {
 public:
  using ends = Ends<typename P::ids, typename P::logits>;
  using loss = MaskedCrossEntropy;
  static Shape shapes() { return text; }
  static std::vector<Segment> segments() { return {}; }
  static bool is_token(std::size_t) { return true; }
  static auto labels(Place place) { return next_tokens(place, is_token); }

  explicit Text(Place place) : ids_(filled<std::int32_t, typename P::ids>(text, place, token)) {}
  auto view() const { return ids_.view(); }

 private:
  Tensor<std::int32_t, typename P::ids> ids_;
};

/// Loads a model, runs a step on what Task says, and saves it to `path`. With a rate of 0 the step
/// leaves weights as they are, and the moments of AdamW tell the gradients.
template <class Task, class Net>
void run(ThreadCommunicator& ranks, const Net& net, const std::filesystem::path& original,
         const std::vector<FileTensor>& places, const witness::Values& theirs,
         const std::filesystem::path& path) {
  const Place place = place_of(ranks);
  Model<Net, Context<double, Reference, ThreadCommunicator>, typename Task::ends> model(
      net, ranks, Seed{3}, Task::shapes());
  const TensorNames names = names_in_order(model, places);
  load_weights(original, model, {.names = names, .convert = true});

  const Task task(place);
  const auto labels = Task::labels(place);
  const auto logits = model.evaluate(task.view(), {.segments = Task::segments()});
  const std::size_t classes = logits.global().back().extent();
  CHECK(testing::largest_difference_of_part(
            logits, [&](std::size_t i) { return theirs["logits"][i]; },
            [&](std::size_t i) { return Task::is_token(i / classes); }) < 1e-11);
  Optimizer optimizer(model, AdamW{.learning_rate = 0});
  const double loss = train_step(model, task.view(), labels.view(), typename Task::loss{},
                                 optimizer, {}, Task::segments());
  CHECK(loss == doctest::Approx(theirs.number("loss")).epsilon(1e-12));
  const double added =
      theirs.tensors().contains("balancing loss") ? theirs.number("balancing loss") : 0;
  CHECK(model.layer_losses() == doctest::Approx(added).epsilon(1e-12));
  save_checkpoint(path, model, optimizer, {}, {.names = names});
}

/// The same as transformers at `size` ranks, for a model in plan P that reads and learns what Task
/// says.
template <class P, class Task = Text<P>, class Net>
void check(const std::string& family, const Net& net, const std::vector<FileTensor>& places,
           int size) {
  CAPTURE(family);
  CAPTURE(size);
  const witness::Values theirs("transformers_" + family);
  const auto original = directory(family) / "model.safetensors";
  const testing::TemporaryFolder folder("shardwise_transformers");
  const auto path = folder.path() / "ours.safetensors";
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    run<Task>(ranks, net, original, places, theirs, path);
  });
  const TensorFiles before(original), ours(path);
  CHECK(ours.tensors().size() == 3 * before.tensors().size());
  for (const auto& tensor : before.tensors()) {
    const std::string& name = tensor.first;
    CAPTURE(name);
    CHECK(ours.tensors().at(name).info.shape == tensor.second.info.shape);
    CHECK(numbers_of<double>(ours, name) == numbers_of<float>(before, name));
    const auto gradient = theirs["gradient " + name];
    const auto mean = numbers_of<double>(ours, "optimizer." + name + ".moment0");
    const auto square = numbers_of<double>(ours, "optimizer." + name + ".moment1");
    REQUIRE(mean.size() == gradient.size());
    testing::Largest largest;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      largest.see(std::abs(mean[i] / 0.1 - gradient[i]));
      largest.see(std::abs(square[i] / 0.001 - gradient[i] * gradient[i]));
    }
    CHECK(largest < 1e-11);
  }
}

}  // namespace testing::transformers

// Checkpoints of tensors in memory that the host cannot touch are those of memory of the host.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "shardwise/checkpoint/training.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "support/temporary_folder.hpp"
#include "unit/far_train/machine.hpp"

using namespace testing;

namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A run is saved and goes on; another one loads it, and goes on with the same numbers.
struct SavedRun {
  std::filesystem::path path;

  template <class B, class C>
  Bits operator()(B& backend, C& ranks) const {
    using T = Training<ByFeature, float, Ends<Invariant, Invariant>, AdamW, B, C>;
    const CrossEntropy loss;
    T run(backend, ranks, AdamW{.learning_rate = 0.05});
    for (int i = 0; i < 2; ++i) run.step(run.labels, loss);
    save_checkpoint(path, run.model, run.optimizer, {});
    Bits expected;
    note(expected, run.step(run.labels, loss));
    run.note_values(expected);

    T other(backend, ranks, AdamW{.learning_rate = 0.05});
    load_checkpoint(path, other.model, other.optimizer);
    Bits bits;
    note(bits, other.step(other.labels, loss));
    other.note_values(bits);
    CHECK(bits == expected);

    note(bits, text_of(path));
    const Shape bias_shape{{Axis::output, classes}};
    const TensorNames names{{"0.weight", {"transposed", 0, true}}};
    save_weights(path, other.model, {.names = names, .metadata = {{"of", "whom"}}});
    note(bits, text_of(path));
    run.model.set("2.bias", Tensor<float, Invariant>(bias_shape, place_of(ranks)).view());
    load_weights(path, run.model, {.names = names});
    run.note_values(bits);
    note(bits, message_of([&] { load_checkpoint(path, other.model, other.optimizer); }));
    return bits;
  }
};

}  // namespace

TEST_CASE("a run is saved and goes on") {
  const TemporaryFolder folder("shardwise_far");
  const SavedRun saved_run{folder.path() / "run.safetensors"};
  same_alone(saved_run);
  for (const int size : {2, 3}) same_on_threads(size, saved_run);
}

// Weights of PyTorch by name into a model that is split over ranks, which then gives PyTorch's
// outputs; and back. The files are those of tests/witness/make_safetensors.py.
//
// With SHARDWISE_KEEP set to a folder, what is written stays there, for the script's --check.

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/adamw.hpp"
#include "support/file_tensors.hpp"
#include "support/largest_difference.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;
using testing::bytes_of_tensor;
using testing::numbers_of;
using testing::TemporaryFolder;

namespace {

// begin: names
struct Perceptron : Sequential<ColumnParallelLinear<7, 10>, Gelu, RowParallelLinear<10, 5>> {};

const TensorNames names{{"0.weight", "fc1.weight"},
                        {"0.bias", "fc1.bias"},
                        {"2.weight", "fc2.weight"},
                        {"2.bias", "fc2.bias"}};
// end: names

const std::filesystem::path values =
    std::filesystem::path(__FILE__).parent_path().parent_path() / "witness" / "values";

/// The largest difference between PyTorch's outputs and those of the model at `size` ranks with the
/// weights of `file`.
template <class T>
double difference(int size, const std::filesystem::path& file, bool convert) {
  const TensorFiles witness(values / "perceptron_values.safetensors");
  const std::vector<double> x = numbers_of<float>(witness, "x");
  const std::vector<double> y = numbers_of<double>(witness, "y");
  testing::Largest largest;
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    // begin: load
    Model<Perceptron, Context<T, Reference, ThreadCommunicator>, Ends<Invariant, Invariant>,
          ForwardOnly>
        model(ranks, Seed{5});
    load_weights(file, model, {.names = names, .convert = convert});
    // end: load
    Tensor<T, Invariant> in(Shape{{Axis::batch, 6}, {Axis::feature, 7}}, place_of(ranks));
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<T>(x[i]);
    const auto out = model.evaluate(in.view());
    REQUIRE(out.size() == y.size());
    if (ranks.rank() != 0) return;
    for (std::size_t i = 0; i < y.size(); ++i)
      largest.see(std::abs(static_cast<double>(out[i]) - y[i]));
  });
  return largest;
}

}  // namespace

TEST_CASE("PyTorch's weights give PyTorch's outputs") {
  for (const int size : {1, 2, 3, 4, 8}) {
    CAPTURE(size);
    // In double, from the same float weights: GELU's erf and sums of at most 10 products of at most
    // 3, rounded; in float the same with its eps.
    CHECK(difference<double>(size, values / "perceptron.safetensors", true) <= 1e-14);
    CHECK(difference<float>(size, values / "perceptron.safetensors", false) <= 2e-6);
  }
  // Weights in bf16 are off by up to 2^-9 of themselves: near, and not the same.
  const double rounded = difference<double>(3, values / "perceptron_bf16.safetensors", true);
  CHECK(rounded <= 2e-2);
  CHECK(rounded >= 1e-5);
}

TEST_CASE("and go back to it under their names") {
  const TemporaryFolder folder("shardwise_pytorch");
  const char* keep = std::getenv("SHARDWISE_KEEP");
  const std::filesystem::path where = keep == nullptr ? folder.path() : keep;
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    Model<Perceptron, Context<float, Reference, ThreadCommunicator>> model(ranks, Seed{5});
    Optimizer optimizer(model, AdamW{});
    load_weights(values / "perceptron.safetensors", model, {.names = names});
    // begin: save
    save_weights(where / "ours.safetensors", model, {.names = names});
    save_checkpoint(where / "ours_run.safetensors", model, optimizer, {}, {.names = names});
    save_weights(where / "ours_split.safetensors", model, {.names = names, .max_shard_bytes = 200});
    // end: save
  });
  const TensorFiles original(values / "perceptron.safetensors");
  for (const char* file : {"ours.safetensors", "ours_run.safetensors", "ours_split.safetensors"}) {
    const TensorFiles ours(where / file);
    for (const auto& tensor : original.tensors()) {
      const std::string& name = tensor.first;
      CAPTURE(name);
      CHECK(ours.tensors().at(name).info.shape == tensor.second.info.shape);
      CHECK(bytes_of_tensor(ours, name) == bytes_of_tensor(original, name));
    }
  }
}

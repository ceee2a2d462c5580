// Any bytes as a checkpoint of a training run, in one file or in two with an index: either a
// data_error, or every tensor can be read and the state is one of a run.

#include "shardwise/checkpoint/training.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "fuzz/fuzz.hpp"

using namespace shardwise;

namespace {

void try_checkpoint(const char* name) {
  const auto files = fuzz::accepted<data_error>([&] { return TensorFiles(fuzz::folder() / name); });
  if (!files) return;
  for (const auto& [tensor, place] : files->tensors()) {
    std::vector<std::byte> bytes(place.info.end - place.info.begin);
    files->open(place.file).read(files->begin_of(place), std::span(bytes));
  }
  fuzz::may_reject<data_error>([&] {
    const detail::RunState state = detail::read_run_state(*files);
    fuzz::require(state.step > 0, "a step has a number");
    fuzz::require(std::isfinite(state.learning_rate), "a learning rate is a number");
    const double scale = state.position.loss_scale.scale;
    fuzz::require(scale > 0 && scale <= std::numeric_limits<float>::max(), "a scale is a float");
  });
}

}  // namespace

/// The first byte says in how many sixteenths of the bytes the index and the first file end.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFile whole(fuzz::folder() / "whole.safetensors");
  static const fuzz::InputFile index(fuzz::folder() / "parts.safetensors.index.json");
  static const fuzz::InputFile first(fuzz::folder() / "a.safetensors");
  static const fuzz::InputFile second(fuzz::folder() / "b.safetensors");
  if (size == 0) return 0;
  const std::string_view bytes = fuzz::text_of(data, size).substr(1);
  whole.hold(bytes);
  try_checkpoint("whole.safetensors");
  const std::size_t index_end = bytes.size() * (data[0] / 16U) / 16;
  const std::size_t first_end = std::max(index_end, bytes.size() * (data[0] % 16U) / 16);
  index.hold(bytes.substr(0, index_end));
  first.hold(bytes.substr(index_end, first_end - index_end));
  second.hold(bytes.substr(first_end));
  try_checkpoint("parts.safetensors");
  return 0;
}

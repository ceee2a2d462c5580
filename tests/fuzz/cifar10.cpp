// Any bytes as the files of CIFAR-10: either a data_error, or what was read is what they hold.

#include "../../examples/support/cifar10.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "fuzz/fuzz.hpp"

using namespace example;
using shardwise::data_error;

namespace {

void try_part(Part part, std::string_view bytes) {
  fuzz::may_reject<data_error>([&] {
    const ImageSet set = read_cifar10(part, fuzz::folder());
    fuzz::require(set.count > 0 && set.labels.size() == set.count &&
                      set.pixels.size() == set.count * set.image_size(),
                  "each image has its pixels and a label");
    for (const std::int32_t label : set.labels)
      fuzz::require(label >= 0 && label < 10, "a label is a class");
    fuzz::require(bytes.size() == set.count + set.pixels.size(), "each byte of the files is read");
  });
}

}  // namespace

/// The five files of training images get a fifth of the bytes each; if the first byte is 0, the
/// last one gets the rest, too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFile test(fuzz::folder() / "test_batch.bin");
  static std::deque<fuzz::InputFile> training;
  while (training.size() < 5)
    training.emplace_back(fuzz::folder() /
                          ("data_batch_" + std::to_string(training.size() + 1) + ".bin"));
  if (size == 0) return 0;
  const std::string_view bytes = fuzz::text_of(data, size).substr(1);
  test.hold(bytes);
  try_part(Part::test, bytes);
  const std::size_t equal = bytes.size() / 5;
  for (std::size_t i = 0; i < 5; ++i) {
    const bool is_last = i == 4 && data[0] == 0;
    training[i].hold(bytes.substr(i * equal, is_last ? bytes.size() : equal));
  }
  try_part(Part::train, data[0] == 0 ? bytes : bytes.substr(0, 5 * equal));
  return 0;
}

// Any bytes as an IDX file, plain or gzip'd: either a data_error, or what was read is what the file
// holds.

#include "../../examples/support/idx.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/fuzz.hpp"

using namespace example;
using shardwise::data_error;

namespace {

void try_axes(std::string_view bytes, std::size_t axes) {
  fuzz::may_reject<data_error>([&] {
    const IdxArray array = read_idx(fuzz::folder() / "file", axes);
    fuzz::require(array.extents.size() == axes, "there are as many axes as asked for");
    double elements = 1;
    for (const std::size_t extent : array.extents) elements *= static_cast<double>(extent);
    fuzz::require(elements == static_cast<double>(array.values.size()),
                  "the elements are as many as the extents say");
    if (bytes.front() != 0) return;  // it is gzip'd
    const std::string_view data(reinterpret_cast<const char*>(array.values.data()),
                                array.values.size());
    fuzz::require(bytes.substr(4 + 4 * axes) == data, "the elements are those of the file");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::InputFile file(fuzz::folder() / "file");
  const std::string_view bytes = fuzz::text_of(data, size);
  file.hold(bytes);
  for (const std::size_t axes : {1U, 3U}) try_axes(bytes, axes);
  return 0;
}

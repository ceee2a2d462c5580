// Any bytes as a .npy file and as the text of its header: either a data_error, or what was read is
// what the file holds and is read again when it is written. See run.sh.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/fuzz.hpp"
#include "shardwise/interop/npy_header.hpp"

using namespace shardwise;
using fuzz::accepted;
using fuzz::require;

namespace {

/// Without the checks of the parser, in numbers that do not wrap.
void require_bytes(const NpyHeader& header, std::uint64_t data_bytes) {
  double bytes = static_cast<double>(size_of(header.dtype));
  for (const std::uint64_t extent : header.shape) bytes *= static_cast<double>(extent);
  require(bytes == static_cast<double>(data_bytes), "the elements are as many as the shape says");
}

NpyHeader read(std::string_view bytes, std::uint64_t data_bytes) {
  const detail::NpyStart start =
      detail::find_npy_header(bytes.substr(0, 12), bytes.size() + data_bytes, "file");
  require(start.begin <= bytes.size(), "the header begins in the file");
  require(start.length <= detail::longest_npy_header, "no header is long");
  return detail::parse_npy_header(bytes.substr(start.begin, start.length), data_bytes, "file");
}

void try_header(std::string_view text, std::uint64_t data_bytes) {
  const auto header =
      accepted<data_error>([&] { return detail::parse_npy_header(text, data_bytes, "header"); });
  if (!header) return;
  require_bytes(*header, data_bytes);
  const std::string written = detail::npy_header_bytes(*header);
  require(written.size() % 64 == 0, "elements are aligned");
  const NpyHeader again = read(written, data_bytes);
  require(again.dtype == header->dtype && again.shape == header->shape,
          "a header is read as it was written");
}

void try_file(std::string_view bytes) {
  const auto start = accepted<data_error>(
      [&] { return detail::find_npy_header(bytes.substr(0, 12), bytes.size(), "file"); });
  if (!start) return;
  require(start->begin + start->length <= bytes.size(), "the header is in the file");
  try_header(bytes.substr(start->begin, start->length),
             bytes.size() - start->begin - start->length);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  try_file(bytes);
  if (size > 0) try_header(bytes.substr(1), data[0]);
  return 0;
}

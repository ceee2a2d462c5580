// Any bytes as a safetensors file, as a header and as an index: either a data_error, or what was
// read is whole and is read again when it is written. See run.sh.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/fuzz.hpp"
#include "shardwise/checkpoint/safetensors_header.hpp"
#include "shardwise/checkpoint/safetensors_index.hpp"

using namespace shardwise;
using fuzz::accepted;
using fuzz::require;

namespace {

bool equal(const detail::SafetensorsHeader& a, const detail::SafetensorsHeader& b) {
  return a.metadata == b.metadata &&
         std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
                    [](const auto& x, const auto& y) {
                      return x.first == y.first && x.second.dtype == y.second.dtype &&
                             x.second.shape == y.second.shape && x.second.begin == y.second.begin &&
                             x.second.end == y.second.end;
                    });
}

/// Without the checks of the parser: every byte of the data belongs to exactly one tensor.
void require_cover(const detail::SafetensorsHeader& header, std::uint64_t data_bytes) {
  std::uint64_t sum = 0;
  for (const auto& [name, info] : header.tensors) {
    require(info.begin <= info.end && info.end <= data_bytes, "a tensor lies in the data");
    double elements = 1;
    for (const std::uint64_t extent : info.shape) elements *= static_cast<double>(extent);
    require(elements * static_cast<double>(info.dtype.bits) ==
                8 * static_cast<double>(info.end - info.begin),
            "a tensor has the bytes of its shape");
    sum += info.end - info.begin;
    for (const auto& [other_name, other] : header.tensors) {
      require(name == other_name || info.begin >= other.end || other.begin >= info.end ||
                  info.begin == info.end || other.begin == other.end,
              "tensors do not overlap");
    }
  }
  require(sum == data_bytes, "there is no hole");
}

void try_header(std::string_view json, std::uint64_t data_bytes) {
  const auto header = accepted<data_error>(
      [&] { return detail::parse_safetensors_header(json, data_bytes, "header"); });
  if (!header) return;
  require_cover(*header, data_bytes);
  const std::string written = detail::safetensors_header_bytes(*header);
  require(written.size() % 8 == 0, "data are aligned");
  const std::string_view again = std::string_view(written).substr(8);
  require(equal(*header, detail::parse_safetensors_header(again, data_bytes, "again")),
          "a header is read as it was written");
}

void try_file(std::string_view bytes) {
  if (bytes.size() < 8) return;
  std::array<unsigned char, 8> first{};
  std::copy_n(bytes.begin(), 8, first.begin());
  const auto length = accepted<data_error>(
      [&] { return detail::safetensors_header_length(first, bytes.size(), "file"); });
  if (!length) return;
  require(*length <= bytes.size() - 8, "the header is in the file");
  try_header(bytes.substr(8, *length), bytes.size() - 8 - *length);
}

void try_index(std::string_view json) {
  const auto index =
      accepted<data_error>([&] { return detail::parse_safetensors_index(json, "index"); });
  if (!index) return;
  for (const auto& [tensor, file] : index->files) {
    require(file.find('/') == std::string::npos && file != ".." && !file.empty(),
            "a file is in the folder");
  }
  const std::string text = detail::safetensors_index_text(*index, 0);
  require(detail::parse_safetensors_index(text, "again").files == index->files,
          "an index is read as it was written");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  try_file(bytes);
  try_index(bytes);
  if (size > 0) try_header(bytes.substr(1), data[0]);
  return 0;
}

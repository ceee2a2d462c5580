#pragma once
// What a file has beside the tensors of a model.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "shardwise/checkpoint/tensor_files.hpp"
#include "shardwise/checkpoint/tensor_names.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise::detail {

/// Whether a name is of a pattern, in which a * stands for any text.
constexpr bool matches(std::string_view name, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  name.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  for (;; name.remove_prefix(1)) {
    if (matches(name, pattern)) return true;
    if (name.empty()) return false;
  }
}

inline bool is_without_meaning(const OtherTensors& others, const std::string& name) {
  return std::ranges::any_of(others.without_meaning,
                             [&](const std::string& pattern) { return matches(name, pattern); });
}

/// Of what a tensor of the file must be a copy; empty if of nothing that the file has.
inline std::string original_of(const TensorFiles& files, const OtherTensors& others,
                               const std::string& name) {
  for (const auto& [copy, original] : others.copies)
    if (copy == name && files.tensors().contains(original)) return original;
  return {};
}

/// Throws data_error if a tensor of the file is no copy of the other one, as far as this rank
/// compares them: its block of the bytes.
inline void require_copy(const TensorFiles& files, const std::string& copy,
                         const std::string& original, Place rank) {
  const TensorFiles::Place& a = files.tensors().at(copy);
  const TensorFiles::Place& b = files.tensors().at(original);
  bool equal = a.info.shape == b.info.shape && a.info.dtype == b.info.dtype;
  const File of_a = files.open(a.file), of_b = files.open(b.file);
  std::array<std::byte, 1 << 14> here{}, there{};
  for (Interval left = block_of(a.info.end - a.info.begin, rank); equal && left.size > 0;) {
    const std::size_t now = std::min(left.size, here.size());
    of_a.read(files.begin_of(a) + left.offset, std::span(here).first(now));
    of_b.read(files.begin_of(b) + left.offset, std::span(there).first(now));
    equal =
        std::equal(here.begin(), here.begin() + static_cast<std::ptrdiff_t>(now), there.begin());
    left = {left.offset + now, left.size - now};
  }
  if (equal) return;
  throw data_error({files.name_of_file(a), ": the tensor ", in_quotes(copy),
                    " is another one than ", in_quotes(original),
                    ", but the model has one tensor for both; load it into a model with a tensor "
                    "for each (of transformers: tie_word_embeddings is false), or leave one out of "
                    "the file"});
}

}  // namespace shardwise::detail

#pragma once
// Tensors of a file as they are in it.

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "shardwise/checkpoint/tensor_files.hpp"

namespace testing {

inline std::string bytes_of_tensor(const shardwise::TensorFiles& files, const std::string& name) {
  const auto& place = files.tensors().at(name);
  std::string bytes(place.info.end - place.info.begin, '\0');
  files.open(place.file).read(files.begin_of(place), std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

/// The elements of a tensor of T.
template <class T>
std::vector<double> numbers_of(const shardwise::TensorFiles& files, const std::string& name) {
  const std::string bytes = bytes_of_tensor(files, name);
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return {numbers.begin(), numbers.end()};
}

}  // namespace testing

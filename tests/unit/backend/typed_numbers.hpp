#pragma once
// Numbers of a dtype in tests of backends.

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "shardwise/core/dtype.hpp"

namespace backend_test {

template <class T>
double number_of(T value) {
  return static_cast<double>(static_cast<shardwise::accumulate_t<T>>(value));
}

/// The numbers rounded to T.
template <class T>
std::vector<T> rounded(const std::vector<double>& values) {
  std::vector<T> result;
  for (const double value : values)
    result.push_back(static_cast<T>(static_cast<shardwise::accumulate_t<T>>(value)));
  return result;
}

/// Element-wise ==, by value: bf16 and fp16 compare as the floats they stand for.
template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(number_of(a[i]) == number_of(b[i]))) return false;
  }
  return true;
}

/// Says which element of a result is not what it should be.
inline void note_difference(const char* what, std::size_t i, double found, double expected) {
  MESSAGE(std::string(what) << "[" << i << "] is " << found << " and not " << expected);
}

/// A number that no result of these tests has: what a kernel fails to write shows.
template <class T>
std::vector<T> unwritten(std::size_t n) {
  return std::vector<T>(n, static_cast<T>(-999.0F));
}

}  // namespace backend_test

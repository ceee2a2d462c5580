#pragma once
// In which order samples are used, and how the order is cut into batches.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/core/error.hpp"
#include "shardwise/core/philox.hpp"

namespace shardwise {

/// The numbers 0, ..., count - 1 as they come: for evaluation.
/// Throws argument_error for a count of 2^32 or more.
inline std::vector<std::uint32_t> stored_order(std::size_t count) {
  if (count > std::numeric_limits<std::uint32_t>::max())
    throw argument_error("order of samples: " + std::to_string(count) +
                         " samples are more than their 32-bit numbers can tell apart; split the "
                         "data set");
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

/// A random permutation of 0, ..., count - 1 that depends on `count`, `seed` and `epoch` alone, so
/// that every rank finds the same one by itself. Throws argument_error for a count or an epoch of
/// 2^32 or more.
///
/// Source: the shuffle of Fisher and Yates, from the front. One word chooses among at most `count`
/// places, so a choice is off its fair share by less than count / 2^32 of it.
inline std::vector<std::uint32_t> shuffled_order(std::size_t count, Seed seed,
                                                 std::uint64_t epoch) {
  std::vector<std::uint32_t> order = stored_order(count);
  const RandomStream draws(seed, data_ordinal, epoch);
  draws.for_each_bits(0, count, [&order](std::uint64_t i, std::uint32_t word) {
    std::swap(order[i], order[word * (i + 1) >> 32]);
  });
  return order;
}

/// An order cut into batches of one size; the last is smaller where the size does not divide.
class Batches {
 public:
  /// Throws argument_error for a batch size of zero.
  Batches(std::vector<std::uint32_t> order, std::size_t batch_size)
      : order_(std::move(order)), batch_size_(batch_size) {
    if (batch_size == 0) throw argument_error("batches: the batch size is 0; it must be 1 or more");
  }

  /// How many batches there are.
  std::size_t size() const {
    return order_.size() / batch_size_ + (order_.size() % batch_size_ != 0);
  }

  /// The samples of batch `b`, below size().
  std::span<const std::uint32_t> operator[](std::size_t b) const {
    const std::size_t begin = b * batch_size_;
    return std::span(order_).subspan(begin, std::min(batch_size_, order_.size() - begin));
  }

 private:
  std::vector<std::uint32_t> order_;
  std::size_t batch_size_;
};

}  // namespace shardwise

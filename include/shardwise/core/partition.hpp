#pragma once
// How an axis is split over ranks. One function gives the size and offset of every shard.

#include <cstddef>
#include <string>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/shape.hpp"

namespace shardwise {

/// A rank and the number of ranks.
struct Place {
  int rank = 0;  ///< counted from 0
  int size = 1;  ///< number of ranks

  friend constexpr bool operator==(const Place&, const Place&) = default;
};

/// "rank 1 of 4".
std::string to_string(const Place& place);

/// A run of neighbouring elements of one axis.
struct Interval {
  std::size_t offset = 0;  ///< of the first element
  std::size_t size = 0;    ///< elements

  constexpr std::size_t end() const { return offset + size; }  ///< one past the last element
  friend constexpr bool operator==(const Interval&, const Interval&) = default;
};

/// The units that a rank holds: contiguous and balanced. The first `units mod size` ranks hold one
/// unit more; with fewer units than ranks the last ranks hold none. 10 units over 4 ranks are split
/// into 3, 3, 2 and 2.
constexpr Interval block_of(std::size_t units, Place place) {
  const auto rank = static_cast<std::size_t>(place.rank);
  const auto size = static_cast<std::size_t>(place.size);
  const std::size_t share = units / size;
  const std::size_t longer = units % size;
  const std::size_t first = rank * share + (rank < longer ? rank : longer);
  return {first, share + (rank < longer ? 1 : 0)};
}

/// The elements of an axis that a rank holds: whole units.
constexpr Interval block_of(const Dim& dim, Place place) {
  const Interval units = block_of(dim.units, place);
  return {units.offset * dim.grain, units.size * dim.grain};
}

namespace detail {

/// `dim` with another extent, a multiple of its grain.
constexpr Dim with_extent(const Dim& dim, std::size_t extent) {
  return {dim.axis, extent / (dim.grain == 0 ? 1 : dim.grain), dim.grain, dim.readers};
}

/// The rank's part of `dim` as a separate axis.
constexpr Dim local_dim(const Dim& dim, Place place) {
  return with_extent(dim, block_of(dim, place).size);
}

/// The elements of both; empty if they do not overlap.
constexpr Interval overlap(const Interval& a, const Interval& b) {
  const std::size_t begin = a.offset > b.offset ? a.offset : b.offset;
  const std::size_t end = a.end() < b.end() ? a.end() : b.end();
  return {begin, end > begin ? end - begin : 0};
}

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE std::string to_string(const Place& place) {
  return detail::sentence({"rank ", place.rank, " of ", place.size});
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE

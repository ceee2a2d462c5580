#pragma once
// Ranks that write or read a tensor together, and sum its checksum.

#include <cstdint>
#include <span>
#include <vector>

#include "shardwise/checkpoint/checksum.hpp"
#include "shardwise/checkpoint/part.hpp"
#include "shardwise/model/host_ranks.hpp"

namespace shardwise::detail {

/// Those of a model, or of other ranks, which hold unlike parts of split tensors.
template <AgreeingRanks R>
Writers writers_of(R& ranks) {
  Writers writers;
  if constexpr (requires { ranks.mesh_place(); })
    writers.place = ranks.mesh_place();
  else
    writers.place[MeshAxis::tensor] = {ranks.rank(), ranks.size()};
  return writers;
}

/// Sums what each of the ranks has added to its own. A collective.
/// sends    an all-reduce of six numbers for each: halves, of which no sum overflows
template <AgreeingRanks R>
void sum_over_ranks(R& ranks, std::vector<Checksum>& checksums) {
  std::vector<std::int64_t> halves;
  for (const Checksum& one : checksums) {
    for (const std::uint64_t value : {one.bytes, one.sum, one.weighted}) {
      halves.push_back(static_cast<std::int64_t>(value & 0xffffffffU));
      halves.push_back(static_cast<std::int64_t>(value >> 32));
    }
  }
  const std::span<std::int64_t> numbers(halves);
  ranks.all_reduce(std::span<const std::int64_t>(numbers), numbers, Reduction::sum);
  auto half = halves.begin();
  for (Checksum& one : checksums) {
    for (std::uint64_t* value : {&one.bytes, &one.sum, &one.weighted}) {
      *value = static_cast<std::uint64_t>(*half++);
      *value += static_cast<std::uint64_t>(*half++) << 32;
    }
  }
}

}  // namespace shardwise::detail

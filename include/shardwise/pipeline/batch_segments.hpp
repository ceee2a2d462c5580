#pragma once
// The segments of the batches that a pipeline is given, one list for each batch.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardwise/comm/mark.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/model/sequence_table.hpp"
#include "shardwise/model/values.hpp"

namespace shardwise::detail {

/// A list of segments for each batch; empty if each sample of all of them is one sequence.
using BatchSegments = std::span<const std::vector<Segment>>;

/// The segments of batch `number`, whose input is `x`.
template <class Input>
SegmentsOf segments_of(BatchSegments all, std::size_t number, const Input& x) {
  const Shape first = global_shapes(x)[0];
  if (all.empty()) return {{}, first};
  return {all[number], first};
}

/// The number of all segments, and a hash of their rows and positions; 0 for none.
struct GivenSegments {
  std::uint32_t count = 0;
  std::uint32_t hash = 0;

  GivenSegments() = default;
  explicit GivenSegments(BatchSegments all) {
    for (const std::vector<Segment>& of_batch : all) {
      count += static_cast<std::uint32_t>(of_batch.size());
      hash = mixed(hash, static_cast<std::uint32_t>(of_batch.size()));
      for (const Segment& one : of_batch)
        for (const std::size_t number : {one.row, one.rows, one.position})
          hash = mixed(hash, static_cast<std::uint32_t>(number));
    }
    if (count == 0) hash = 0;  // as many empty lists say what none at all says
  }

  friend bool operator==(const GivenSegments&, const GivenSegments&) = default;
  friend std::string to_string(const GivenSegments& given) {
    if (given.count == 0) return "no segments";
    return sentence({given.count, " segments with the hash ", given.hash});
  }
};

/// Throws argument_error for another number of lists than of batches, and as find_places for
/// segments that do not fit their batch. `x` are the inputs of the batches on this rank.
template <class Input>
void require_segments(Pool& pool, BatchSegments all, const std::vector<Input>& x) {
  if (all.empty()) return;
  if (all.size() != x.size())
    throw argument_error({"pipeline: ", x.size(), " inputs and ", all.size(),
                          " lists of segments were given; give one list for each batch, an empty "
                          "one if each of its samples is one sequence, or none at all"});
  for (std::size_t k = 0; k < x.size(); ++k) {
    if (all[k].empty()) continue;
    const Shape batch = global_shapes(x[k])[0];
    const Buffer places = pool.take_on_host(rows_of_tokens(batch) * sizeof(TokenPlace));
    try {
      find_places(all[k], batch, static_cast<TokenPlace*>(places.data()));
    } catch (error& e) {
      e.add_place(sentence({"pipeline: batch ", k}), ": ");
      throw;
    }
  }
}

}  // namespace shardwise::detail

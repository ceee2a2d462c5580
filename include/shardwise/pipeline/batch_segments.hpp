#pragma once
// The segments of the batches that a pipeline is given, one list for each batch.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardwise/comm/given_options.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/location.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/model/sequence_table.hpp"
#include "shardwise/model/values.hpp"

namespace shardwise::detail {

/// A list of segments for each batch; empty if each sample of all of them is one sequence.
using BatchSegments = std::span<const std::vector<Segment>>;

/// The segments of batch `number`.
inline std::span<const Segment> segments_of(BatchSegments all, std::size_t number) {
  return all.empty() ? std::span<const Segment>() : all[number];
}

/// A hash of the rows and positions of all segments; 0 for none, which as many empty lists say,
/// too.
inline std::uint32_t digest(BatchSegments all) {
  std::uint32_t hash = 0;
  bool are_any = false;
  for (const std::vector<Segment>& of_batch : all) {
    are_any = are_any || !of_batch.empty();
    hash = mixed(hash, static_cast<std::uint32_t>(of_batch.size()));
    for (const Segment& one : of_batch)
      for (const std::size_t number : {one.row, one.rows, one.position})
        hash = mixed(hash, static_cast<std::uint32_t>(number));
  }
  return are_any ? hash : 0;
}

/// "batch 0 rows 0 to 4, batch 1 rows 5 to 9 from position 3", or "none"; of many their number, and
/// behind a tab the hash, as `GivenOptions` has it.
[[gnu::cold]] inline std::string segments_text(BatchSegments all) {
  std::string text;
  std::size_t count = 0;
  for (std::size_t k = 0; k < all.size(); ++k)
    for (const Segment& one : all[k]) {
      append(text, {count++ == 0 ? "batch " : ", batch ", k, " rows ", one.row, " to ",
                    one.row + one.rows - 1});
      if (one.position > 0) append(text, {" from position ", one.position});
    }
  if (count > 8) return sentence({count, " segments\t", digest(all)});
  return count == 0 ? "none" : text;
}

/// Throws argument_error for another number of lists than of batches, and as find_places for
/// segments that do not fit their batch. `x` are the inputs of the batches on this rank.
template <class Input>
void require_segments(Pool& pool, BatchSegments all, const std::vector<Input>& x) {
  if (all.empty()) return;
  if (all.size() != x.size())
    throw argument_error({x.size(), " inputs and ", all.size(),
                          " lists of segments were given; give one list for each batch, an empty "
                          "one if each of its samples is one sequence, or none at all"});
  for (std::size_t k = 0; k < x.size(); ++k) {
    if (all[k].empty()) continue;
    const Shape batch = global_shapes(x[k])[0];
    const Buffer places = pool.take_on_host(rows_of_tokens(batch) * sizeof(Sequences::Row));
    const DescribedLocation here([k] { return sentence({"batch ", k}); });
    find_places(all[k], batch, static_cast<Sequences::Row*>(places.data()));
  }
}

}  // namespace shardwise::detail

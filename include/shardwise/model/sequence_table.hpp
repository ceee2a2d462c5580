#pragma once
// The sequences of the batch that a model runs on.

#include <cstddef>
#include <span>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// The rows of a batch of tokens.
/// throws  as sequence_position
inline std::size_t rows_of_tokens(const Shape& batch) {
  return batch.elements(0, sequence_position(batch) + 1);
}

/// Writes the place of every row of a batch [batch, sequence, ...].
/// throws   argument_error for segments that overlap, or that do not lie within one sample
void find_places(std::span<const Segment> segments, const Shape& batch, Sequences::Row* places);

/// The sequences of a batch, in the memory of the backend's tensors. Without segments each sample
/// is one sequence.
class SequenceTable {
 public:
  /// throws  as find_places, and shape_error for segments of a batch without the axis sequence
  template <class B>
  void set(B& backend, Pool& pool, const SegmentsOf& segments) {
    rows_ = 0;
    memory_ = {};
    if (segments.list.empty()) return;
    const std::size_t rows = rows_of_tokens(segments.batch);
    const Buffer host = pool.take_on_host(rows * sizeof(Sequences::Row));
    auto* const places = static_cast<Sequences::Row*>(host.data());
    find_places(segments.list, segments.batch, places);
    memory_ = pool.take(rows * sizeof(Sequences::Row));
    to_device(backend, places, rows, static_cast<Sequences::Row*>(memory_.data()));
    rows_ = rows;
  }

  /// For a tensor of this global shape.
  /// throws   shape_error if it does not have the rows of the batch for which segments were given
  Sequences of(const Shape& shape) const;

 private:
  std::size_t rows_ = 0;
  Buffer memory_;
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

// Throws argument_error for segment `number`, which is `one`.
[[noreturn]] SHARDWISE_INLINE void refuse_segment(std::size_t number, const Segment& one,
                                                  const Shape& batch, const char* why) {
  throw argument_error({"segment ", number, " is rows ", one.row, " to ", one.row + one.rows,
                        " (without the last) of a batch ", batch, why});
}

SHARDWISE_INLINE void find_places(std::span<const Segment> segments, const Shape& batch,
                                  Sequences::Row* places) {
  const std::size_t position = sequence_position(batch);
  const std::size_t length = batch[position].extent();
  const std::size_t rows = rows_of_tokens(batch);
  for (std::size_t r = 0; r < rows; ++r) places[r] = {};
  for (std::size_t number = 0; number < segments.size(); ++number) {
    const Segment& one = segments[number];
    const auto refuse = [&](const char* why) { refuse_segment(number, one, batch, why); };
    if (one.rows == 0) refuse(": it has no rows; leave it out");
    if (one.rows > rows || one.row > rows - one.rows)
      refuse(": it leaves the batch. Rows are counted over batch and sequence");
    if (one.position > dynamic - one.rows) refuse(": its positions are too large to be counted");
    if (one.row / length != (one.row + one.rows - 1) / length)
      refuse(": it lies in several samples. Cut it where a sample ends");
    for (std::size_t row = one.row; row < one.row + one.rows; ++row) {
      if (!places[row].is_padding()) refuse(": it overlaps an earlier segment");
      places[row] = {one.row, one.row + one.rows, one.position + (row - one.row)};
    }
  }
}

SHARDWISE_INLINE Sequences SequenceTable::of(const Shape& shape) const {
  const std::size_t position = sequence_position(shape);
  const std::size_t length = shape[position].extent();
  if (rows_ == 0) return Sequences(length);
  const std::size_t rows = rows_of_tokens(shape);
  if (rows != rows_) {
    throw shape_error({"a tensor ", shape, " has ", rows,
                       " rows of tokens, but the segments were given for a batch of ", rows_,
                       ": layers behind one that changes the number of tokens, such as a "
                       "ClassToken, take no segments; leave them out"});
  }
  return Sequences(length, static_cast<const Sequences::Row*>(memory_.data()));
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

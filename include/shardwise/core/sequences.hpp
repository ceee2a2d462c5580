#pragma once
// The tokens of a batch: which of them belong together, at which positions, and which a rank holds.

#include <cstddef>
#include <span>

#include "shardwise/core/error.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/shape.hpp"

namespace shardwise {

/// Neighbouring rows of a batch [batch, sequence, ...] that are one sequence: a packed document, or
/// the tokens of a sample without its padding. It lies within one sample. Segments are those of the
/// batch of all ranks, in a list that is the same on every rank.
struct Segment {
  std::size_t row = 0;       ///< the first one; rows are counted over batch and sequence
  std::size_t rows = 0;      ///< their number
  std::size_t position = 0;  ///< of the first row in its sequence
  std::size_t sequence = 0;  ///< the number of its sequence in a KeyValueCache; unused without one
};

/// The sequences of a batch. The only source of positions and of what a token may see. A value that
/// loops on a device may use.
class Sequences {
 public:
  /// The place of a row in its sequence.
  struct Row {
    std::size_t begin = 0;     ///< the first row of its segment
    std::size_t end = 0;       ///< one past the last row of its segment; 0 for padding
    std::size_t position = 0;  ///< in its sequence, from 0 on

    /// Whether the row is in no segment.
    constexpr bool is_padding() const { return end == 0; }
  };

  Sequences() = default;
  /// Each sample of `length` rows is one sequence, if `places` is null; otherwise `places` has one
  /// element for each row of the batch, in the memory of the loops that use it.
  constexpr explicit Sequences(std::size_t length, const Row* places = nullptr)
      : length_(length), places_(places) {}

  /// Whether each sample is one sequence, because nothing else was said.
  constexpr bool are_samples() const { return places_ == nullptr; }

  /// The place of a row, counted over the whole batch.
  constexpr Row operator[](std::size_t row) const {
    if (places_ != nullptr) return places_[row];
    const std::size_t begin = row / length_ * length_;
    return {begin, begin + length_, row - begin};
  }

 private:
  std::size_t length_ = 1;
  const Row* places_ = nullptr;
};

/// The rows that a rank holds of a tensor [batch, sequence, ...], or of one sample [sequence, ...].
struct TokenRows {
  std::size_t samples = 1;       ///< on the rank
  std::size_t here = 0;          ///< rows of each sample that the rank holds
  std::size_t length = 0;        ///< rows of a whole sample
  std::size_t first_sample = 0;  ///< the number of the rank's first sample
  std::size_t first_row = 0;     ///< the number, in its sample, of the first row of each

  /// Rows on the rank.
  constexpr std::size_t count() const { return samples * here; }
  /// The number of the rank's row `row` in the whole batch.
  constexpr std::size_t global(std::size_t row) const {
    return (first_sample + row / here) * length + first_row + row % here;
  }
  /// The rank's rows among the rows [begin, end) of the whole batch, all of sample `sample` of the
  /// rank.
  constexpr Interval local(std::size_t sample, std::size_t begin, std::size_t end) const {
    const std::size_t first = (first_sample + sample) * length + first_row;
    const Interval held = detail::overlap({first, here}, {begin, end > begin ? end - begin : 0});
    return {sample * here + (held.size == 0 ? 0 : held.offset - first), held.size};
  }
};

namespace detail {

/// The segments of a batch, and the shape of the tensor whose rows they count: a model's input, or
/// in a stage of a pipeline that of the whole model.
struct SegmentsOf {
  std::span<const Segment> list;  ///< the same on every rank
  Shape batch;                    ///< [batch, sequence, ...]
};

/// The position of the axis sequence in a tensor of tokens.
/// throws  shape_error if it is not the first axis, or the second one behind batch
constexpr std::size_t sequence_position(const Shape& shape) {
  const std::size_t position = shape.find(Axis::sequence);
  const bool behind_batch = position == 1 && shape[0].axis == Axis::batch;
  if (position == shape.rank() || (position != 0 && !behind_batch)) {
    throw shape_error({"a tensor ", shape,
                       " has no rows of tokens: its axes must begin with batch and sequence, or "
                       "with sequence alone"});
  }
  return position;
}

}  // namespace detail

}  // namespace shardwise

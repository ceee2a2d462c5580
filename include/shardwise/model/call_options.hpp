#pragma once
// What a model may be told of a batch, besides its inputs.

#include <span>

#include "shardwise/core/sequences.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/model/flight.hpp"

namespace shardwise {

class KeyValueCache;

/// Options of `Model::forward`, the same on every rank:
///
///     model.forward(x, {.flight = Flight{1}, .segments = documents});
struct ForwardOptions {
  /// Of several batches that are under way, the place of this one; see `Model::reserve_flights`.
  Flight flight{};
  /// The sequences of the whole batch. Without them each sample is one sequence.
  std::span<const Segment> segments{};
  /// The shape of the tensor whose rows segments count; without it that of the first input.
  Shape rows_of{};
};

/// Options of `Model::evaluate`, the same on every rank:
///
///     model.evaluate(ids, {.segments = texts, .cache = &cache});
struct EvaluateOptions {
  /// As those of ForwardOptions; with a cache each continues the sequence that it names.
  std::span<const Segment> segments{};
  /// Has the keys and values of earlier tokens; those of this batch are added to it.
  KeyValueCache* cache = nullptr;
  /// As that of ForwardOptions.
  Shape rows_of{};
};

namespace detail {

/// The segments of a batch whose first input has the shape `first`.
template <class Options>
SegmentsOf segments_in(const Options& options, const Shape& first) {
  return {options.segments, options.rows_of.rank() == 0 ? first : options.rows_of};
}

}  // namespace detail

}  // namespace shardwise

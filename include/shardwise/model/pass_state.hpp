#pragma once
// What a model runs now: a batch, for which purpose, and in which way.

#include <cstdint>

#include "shardwise/model/flight.hpp"
#include "shardwise/model/key_value_cache.hpp"

namespace shardwise::detail {

/// The purpose of a forward.
enum class Purpose : std::uint8_t {
  evaluate,        ///< for the output: saves nothing, drops nothing
  train,           ///< a backward may follow
  find_non_finite  ///< as train, but stops at the first layer that gives a NaN or an infinity
};

/// Of the forward or backward that runs, or ran last.
struct PassState {
  FlightState* flight = nullptr;     ///< that of its batch
  KeyValueCache* cache = nullptr;    ///< that an evaluation continues; null without one
  Purpose purpose = Purpose::train;  ///< of a forward
  bool goes_forward_again = false;   ///< in the block of a Recompute, whose forward will run again
  bool is_again = false;             ///< in that forward, which runs in backward
  bool leaves_parameters = false;    ///< whether a backward leaves the gradients of parameters to
                                     ///< `backward_parameters`, where layers have parts for them
  LeftGradients left_until_sum{};    ///< until ranks next sum a gradient of values

  /// Whether a backward may follow.
  bool trains() const noexcept { return purpose != Purpose::evaluate; }
  /// Whether it stops at the first layer that gives a NaN or an infinity.
  bool finds_non_finite() const noexcept { return purpose == Purpose::find_non_finite; }
  /// Whether layers save for backward what they say in `saves`.
  bool saves() const noexcept { return trains() && !goes_forward_again; }
  /// Whether it is the first forward of its batch in training.
  bool sees_new_batch() const noexcept { return purpose == Purpose::train && !is_again; }
};

}  // namespace shardwise::detail

#pragma once
// How far the gradients of a step are.

#include <cstdint>

#include "shardwise/version.hpp"

namespace shardwise {

/// The state of the gradients of a step.
enum class GradientState : std::uint8_t {
  none,      ///< no batch ran backward
  summands,  ///< after a backward; a gradient with an owed reduction is one summand on each rank
  summed_over_samples,  ///< these, summed over ranks that have other samples; nothing may be added
  share_summed_over_samples,  ///< the same for what the rank's optimizer updates, if that is a
                              ///< share
  whole,                      ///< settled, or written by the program; nothing may be added
  applied                     ///< whole, and an optimizer has changed the parameters by them
};

namespace detail {

/// Whether gradients are whole, so that nothing may be added.
constexpr bool are_whole(GradientState gradients) {
  return gradients == GradientState::whole || gradients == GradientState::applied;
}

}  // namespace detail

}  // namespace shardwise

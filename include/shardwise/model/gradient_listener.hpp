#pragma once
// Who hears during a backward that gradients of parameters are written.

#include <span>

#include "shardwise/model/parameter_layout.hpp"

namespace shardwise::detail {

/// Is told while a batch goes backward.
class GradientListener {
 public:
  /// The gradients of these parameters now contain all that the batch adds to them.
  virtual void written(std::span<const ParameterSlot> parameters) = 0;

 protected:
  ~GradientListener() = default;
};

}  // namespace shardwise::detail

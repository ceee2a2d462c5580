#pragma once
// Sums that go on in backward, for what refuses them.

#include <span>

#include "shardwise/model/meanwhile.hpp"
#include "shardwise/model/parameter_layout.hpp"

namespace testing {

/// Sums nothing.
struct NoSums final : shardwise::detail::SumsMeanwhile {
  void begin(bool) override {}
  void written(std::span<const shardwise::detail::ParameterSlot>) override {}
  void end() override {}
  void discard() noexcept override {}
};

}  // namespace testing

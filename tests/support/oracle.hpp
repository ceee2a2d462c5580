#pragma once
// The library's oracle, by the names that tests call it.

#include "shardwise/testing/oracle.hpp"

namespace testing {

using shardwise::Axis;
using shardwise::Dim;
using shardwise::Place;
using shardwise::Shape;

using namespace shardwise::detail::oracle;

}  // namespace testing

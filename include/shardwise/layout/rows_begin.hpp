#pragma once
// Where the rows of a rank begin in whole images.

#include <cstddef>

#include "shardwise/version.hpp"

namespace shardwise {

/// Where the rows begin that a rank has of the images that a layer takes and gives, if ranks along
/// `context` of a mesh have different ones; else 0.
struct RowsBegin {
  std::size_t in = 0;   ///< of the input, with those that windows read beyond the rank's block
  std::size_t out = 0;  ///< of the output

  /// For a layer from the output to the input.
  constexpr RowsBegin reversed() const { return {out, in}; }
};

}  // namespace shardwise

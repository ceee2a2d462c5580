#pragma once
// Shapes for a number of ranks, with the axes batch, sequence and feature, each of them outermost,
// in the middle and innermost.

#include <array>
#include <vector>

#include "shardwise/core/shape.hpp"

namespace shardwise {

/// Even, uneven and empty shapes, with few units and with large units.
inline std::vector<Shape> shapes_for(int ranks) {
  const auto p = static_cast<std::size_t>(ranks);
  const std::array<std::array<Dim, 3>, 8> sizes{{
      {{{Axis::batch, p}, {Axis::sequence, p}, {Axis::feature, 2 * p}}},            // even
      {{{Axis::batch, p + 1}, {Axis::sequence, 5}, {Axis::feature, 7}}},            // uneven
      {{{Axis::batch, 2}, {Axis::sequence, 1}, {Axis::feature, 3}}},                // few units
      {{{Axis::batch, 1}, {Axis::sequence, 1}, {Axis::feature, 2 * p + 1}}},        // one row
      {{{Axis::batch, 2, 3}, {Axis::sequence, 3, 2}, {Axis::feature, p + 2, 4}}},   // grains
      {{{Axis::batch, 0}, {Axis::sequence, 3}, {Axis::feature, 5}}},                // empty batch
      {{{Axis::batch, 3}, {Axis::sequence, p + 1, 2}, {Axis::feature, 0}}},         // no features
      {{{Axis::batch, 1, 5}, {Axis::sequence, 2 * p - 1}, {Axis::feature, 1, 6}}},  // one unit
  }};
  std::vector<Shape> shapes;
  for (const auto& dims : sizes)
    for (std::size_t first = 0; first < 3; ++first)
      shapes.push_back({dims[first], dims[(first + 1) % 3], dims[(first + 2) % 3]});
  // With an axis between that is never split.
  shapes.push_back({{Axis::batch, 3}, {Axis::channel, 2}, {Axis::sequence, 4}, {Axis::feature, 5}});
  return shapes;
}

}  // namespace shardwise

#pragma once
// Points in the plane on the arms of a spiral, each of the class of its arm.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

namespace example {

inline constexpr std::size_t arms = 3;

struct Points {
  std::vector<double> at;         // x and y of each
  std::vector<std::int32_t> arm;  // of each
};

/// 100 points on each arm.
inline Points spiral() {
  Points points;
  for (int i = 1; i <= 100; ++i) {
    for (int arm = 0; arm < static_cast<int>(arms); ++arm) {
      const double radius = i / 100.0, angle = 4 * radius + 2 * std::numbers::pi / arms * arm;
      points.at.insert(points.at.end(), {radius * std::cos(angle), radius * std::sin(angle)});
      points.arm.push_back(arm);
    }
  }
  return points;
}

}  // namespace example

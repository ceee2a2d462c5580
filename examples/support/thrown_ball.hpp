#pragma once
// A simulation: how far a ball flies that is thrown.

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "shardwise/core/partition.hpp"
#include "shardwise/core/philox.hpp"

namespace example {

inline constexpr std::size_t columns = 3;  // inputs of a run: speed, angle and drag

/// The metres that a thrown ball flies through air.
inline double simulate(std::span<const double> in) {
  constexpr double dt = 0.001;
  double x = 0, y = 0, u = in[0] * std::cos(in[1]), v = in[0] * std::sin(in[1]);
  while (y >= 0) {
    const double slower = dt * in[2] * std::hypot(u, v);
    u -= slower * u;
    v -= slower * v + dt * 9.81;
    x += dt * u;
    y += dt * v;
  }
  return x;
}

/// Rows of inputs, and the result of each.
struct Runs {
  std::vector<double> in, out;
};

/// The rank's block of `count` random runs.
inline Runs simulate_own(std::size_t count, shardwise::Place place) {
  const shardwise::RandomStream random(shardwise::Seed{1}, shardwise::data_ordinal, 0);
  const shardwise::Interval mine = shardwise::block_of(count, place);
  Runs runs;
  for (std::size_t i = mine.offset * columns; i < (mine.offset + mine.size) * columns;
       i += columns) {
    const auto draw = [&](std::size_t c) { return static_cast<double>(random.uniform(i + c)); };
    const std::array in{5 + 25 * draw(0), 0.2 + 1.1 * draw(1), 0.1 * draw(2)};
    runs.in.insert(runs.in.end(), in.begin(), in.end());
    runs.out.push_back(simulate(in));
  }
  return runs;
}

}  // namespace example

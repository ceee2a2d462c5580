// Random windows over the shards of an axis: what all ranks make of what they hold is what one rank
// makes of the whole. Windows are types in layers; here the parts of a layer run on those of a
// test.

#include <doctest/doctest.h>

#include <cstddef>
#include <random>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/layers/detail/image_windows.hpp"
#include "support/seed.hpp"

using namespace shardwise;

namespace {

using Numbers = std::vector<double>;

/// Kernel 1 to 7, stride and dilation 1 to 3, padding up to half of the window, other at each side.
Window random_window(std::mt19937& random) {
  const auto up_to = [&](std::size_t most) { return random() % (most + 1); };
  Window window{1 + up_to(6), 1 + up_to(2), 1 + up_to(2)};
  window.before = up_to(window.reach() / 2);
  window.after = up_to(window.reach() / 2);
  return window;
}

Numbers integers(std::mt19937& random, std::size_t size) {
  Numbers numbers(size);
  for (double& v : numbers) v = static_cast<double>(random() % 5) - 2;
  return numbers;
}

/// Forward and backward of the rows [rows.offset, rows.end()) of x, for those outputs.
struct Pooled {
  Numbers y, dx;

  Pooled(const Window& window, std::size_t width, const Numbers& x, const Interval& rows,
         const Numbers& dy, const Interval& outputs) {
    const PoolingCall call{{1,
                            {SpatialAxis{}, detail::axis_here(window, rows, outputs),
                             SpatialAxis{.input = width, .output = width}}},
                           1};
    const auto part = [&](const Numbers& all, const Interval& of) {
      const auto at = [&](std::size_t row) { return all.data() + row * width; };
      return Numbers(at(of.offset), at(of.end()));
    };
    Reference backend;
    Reference::MaxPooling<double> kernel(backend);
    std::vector<unsigned char> record(kernel.record_bytes(call) + 1);
    y.resize(outputs.size * width);
    dx.resize(rows.size * width);
    kernel.forward(call, part(x, rows).data(), y.data(), record.data());
    kernel.backward(call, part(dy, outputs).data(), record.data(), dx.data());
  }
};

}  // namespace

TEST_CASE("random windows over 1 to 8 shards") {
  constexpr int count = 3000;
  const unsigned first = testing::seed();
  MESSAGE(count << " random windows from SHARDWISE_TEST_SEED=" << first);
  std::mt19937 random(first);
  for (int k = 0; k < count; ++k) {
    const Window window = random_window(random);
    const std::size_t width = 1 + random() % 3;
    const std::size_t rows = 1 + random() % 30;
    const std::size_t outputs = window.outputs(rows);
    const Numbers x = integers(random, rows * width), dy = integers(random, outputs * width);
    const Pooled whole(window, width, x, {0, rows}, dy, {0, outputs});
    for (int ranks = 1; ranks <= 8; ++ranks) {
      INFO("seed " << first << ", number " << k << ": " << rows << " rows, " << to_string(window)
                   << ", " << ranks << " ranks");
      Numbers y, dx(rows * width);
      for (int rank = 0; rank < ranks; ++rank) {
        const Interval held = window.held_by({rank, ranks}, rows);
        const Interval block = block_of({Axis::height, outputs}, {rank, ranks});
        const Pooled part(window, width, x, held, dy, block);
        y.insert(y.end(), part.y.begin(), part.y.end());
        for (std::size_t i = 0; i < part.dx.size(); ++i) dx[held.offset * width + i] += part.dx[i];
      }
      REQUIRE(y == whole.y);
      REQUIRE(dx == whole.dx);
    }
  }
}

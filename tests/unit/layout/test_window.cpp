// Windows against counting: every output's every tap, one at a time.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "shardwise/layout/window.hpp"

using namespace shardwise;

namespace {

/// Calls f(window) for windows with padding from none to beyond the kernel.
template <class F>
void for_each_window(F&& f) {
  for (std::size_t kernel = 1; kernel <= 4; ++kernel)
    for (std::size_t stride = 1; stride <= 3; ++stride)
      for (std::size_t dilation = 1; dilation <= 3; ++dilation)
        for (std::size_t before = 0; before <= 5; ++before)
          for (std::size_t after : {std::size_t{0}, std::size_t{1}, std::size_t{5}})
            f(Window{kernel, stride, dilation, before, after});
  f(Window{.repeats = 2});
  f(Window{.kernel = 3, .stride = 2, .before = 1, .after = 1, .repeats = 3});
}

}  // namespace

TEST_CASE("as many outputs as there are places for the window") {
  for_each_window([](const Window& window) {
    for (std::size_t units = 0; units <= 13; ++units) {
      std::size_t places = 0;
      const std::size_t padded = window.before + units + window.after;
      for (std::size_t first = 0; first + (window.kernel - 1) * window.dilation < padded;
           first += window.stride)
        ++places;
      CHECK(window.outputs(units) == places * window.repeats);
    }
  });
}

TEST_CASE("in ceil mode there is one output more for units behind the last window") {
  for_each_window([](Window window) {
    const bool is_narrow =
        2 * window.before <= window.reach() && 2 * window.after <= window.reach();
    if (!is_narrow || window.repeats > 1) return;  // as that of pooling layers
    window.ceil_mode = true;
    for (std::size_t units = 0; units <= 13; ++units) {
      const std::size_t padded = window.before + units + window.after;
      if (padded < window.reach()) continue;
      std::size_t places = 0;
      for (std::size_t first = 0; first < window.before + units; first += window.stride) {
        const bool fits = first + window.reach() <= padded;
        const bool is_last = first >= window.stride &&  // and the one before leaves units
                             first - window.stride + window.reach() < padded;
        if (fits || is_last) ++places;
      }
      CHECK(window.outputs(units) == places);
    }
  });
  constexpr Window alone{.kernel = 3, .stride = 2, .ceil_mode = true};
  static_assert(alone.outputs(2) == 1 && alone.outputs(1) == 0);
  static_assert(alone.outputs(4) == 2 && alone.reads({1, 1}, 4) == Interval{2, 2});
}

TEST_CASE("what some outputs read reaches from their first tap to their last") {
  for_each_window([](const Window& window) {
    for (std::size_t units = 0; units <= 13; ++units) {
      const std::size_t outputs = window.outputs(units);
      for (std::size_t begin = 0; begin <= outputs; ++begin) {
        for (std::size_t end = begin; end <= outputs; ++end) {
          std::size_t first = units, last = 0;  // of the units among the taps' range
          for (std::size_t unit = 0; unit < units; ++unit) {
            const std::size_t in_padded = unit + window.before;
            const bool between = begin < end &&
                                 in_padded >= begin / window.repeats * window.stride &&
                                 in_padded <= (end - 1) / window.repeats * window.stride +
                                                  (window.kernel - 1) * window.dilation;
            if (between) first = std::min(first, unit);
            if (between) last = unit + 1;
          }
          const Interval reads = window.reads({begin, end - begin}, units);
          CHECK(reads.size == (first < last ? last - first : 0));
          if (reads.size > 0) CHECK(reads.offset == first);
          CHECK(reads.end() <= units);
        }
      }
    }
  });
}

TEST_CASE("a transposed window: each unit reaches its taps, and padding takes outputs away") {
  for_each_window([](Window window) {
    if (window.repeats > 1) return;
    window.is_transposed = true;
    for (window.added = 0; window.added < window.stride; ++window.added) {
      for (std::size_t units = 0; units <= 7; ++units) {
        std::vector<std::vector<std::size_t>> of_output;  // of the padded axis
        for (std::size_t unit = 0; unit < units; ++unit) {
          of_output.resize(unit * window.stride + window.reach());
          for (std::size_t at = unit * window.stride; at < of_output.size(); ++at)
            of_output[at].push_back(unit);
        }
        if (units > 0) of_output.resize(of_output.size() + window.added);
        const std::size_t padding = window.before + window.after;
        const std::size_t outputs = of_output.size() - std::min(of_output.size(), padding);
        REQUIRE(window.outputs(units) == outputs);
        for (std::size_t begin = 0; begin < outputs; ++begin) {
          std::size_t first = units, end = 0;
          for (std::size_t o = begin; o < outputs; ++o) {
            auto read = of_output[window.before + o];
            if (read.empty()) read = {std::min(units - 1, (window.before + o) / window.stride)};
            first = std::min(first, read.front());
            end = std::max(end, read.back() + 1);
            const Interval reads = window.reads({begin, o + 1 - begin}, units);
            CHECK(reads.end() == end);
            if (read.back() * window.stride + window.reach() > window.before + begin)
              CHECK(reads.offset == first);
          }
        }
      }
    }
  });
}

TEST_CASE("29 rows over 4 ranks: each rank needs other rows beside its own") {
  constexpr Window window{.kernel = 3, .stride = 2, .before = 1, .after = 1};
  static_assert(window.outputs(29) == 15);
  constexpr std::array<Interval, 4> needed{{{0, 8}, {7, 9}, {15, 9}, {23, 6}}};
  for (int rank = 0; rank < 4; ++rank) {
    const Interval outputs = block_of({Axis::height, 15}, {rank, 4});
    CHECK(window.reads(outputs, 29) == needed[static_cast<std::size_t>(rank)]);
  }
}

TEST_CASE("the first and the last rank with outputs hold the ends of the axis") {
  constexpr Window inner{.kernel = 2, .stride = 3, .dilation = 2};  // reads 0-2 and 3-5 of 7 units
  static_assert(inner.outputs(7) == 2);
  CHECK(inner.held_by({0, 1}, 7) == Interval{0, 7});
  CHECK(inner.held_by({0, 3}, 7) == Interval{0, 3});
  CHECK(inner.held_by({1, 3}, 7) == Interval{3, 4});
  CHECK(inner.held_by({2, 3}, 7) == Interval{});
  constexpr Window wide{.kernel = 9};  // without outputs the first rank holds all
  CHECK(wide.held_by({0, 2}, 7) == Interval{0, 7});
  CHECK(wide.held_by({1, 2}, 7).size == 0);
}

TEST_CASE("a window is pointwise if each output reads the unit of its own number alone") {
  CHECK(Window{}.is_pointwise());
  CHECK(Window{.dilation = 2}.is_pointwise());
  CHECK_FALSE(Window{.kernel = 2}.is_pointwise());
  CHECK_FALSE(Window{.stride = 2}.is_pointwise());
  CHECK_FALSE(Window{.before = 1}.is_pointwise());
  CHECK_FALSE(Window{.after = 1}.is_pointwise());
  CHECK_FALSE(Window{.repeats = 2}.is_pointwise());
}

TEST_CASE("windows are written for messages") {
  CHECK(to_string(Window{3, 2, 4, 1, 5}) == "kernel 3 stride 2 dilation 4 padding 1+5");
  CHECK(to_string(Window{.kernel = 2, .ceil_mode = true}) ==
        "kernel 2 stride 1 dilation 1 padding 0+0 in ceil mode");
  CHECK(to_string(Window{.kernel = 2, .is_transposed = true, .added = 1}) ==
        "kernel 2 stride 1 dilation 1 padding 0+0 transposed, 1 added");
  CHECK(to_string(Window{.repeats = 2}) == "repeats 2");
  CHECK(to_string(Window{.repeats = dynamic}) == "repeats dynamic");
}

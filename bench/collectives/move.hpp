#pragma once
// What is timed here: something that all ranks do together, on buffers of its own.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/bandwidth.hpp"
#include "support/interleaved.hpp"
#include "support/together.hpp"

namespace bench {

/// As one rank sees it.
struct Move {
  Run run;
  std::function<bool()> is_right;  // whether the last run left what is worked out from the input
  Traffic traffic;
};

/// One way to do it, on so many floats.
template <class C>
struct Way {
  std::string name;
  std::function<Move(C&, std::size_t)> make;
};

/// What `rank` passes in as element i: a whole number to 15, so that sums in any order are exact,
/// and in an order in which no block is like another.
inline float number(int rank, std::size_t i) {
  const std::uint32_t mixed =
      (static_cast<std::uint32_t>(i) + 40503U * static_cast<std::uint32_t>(rank)) * 2654435769U;
  return static_cast<float>(static_cast<int>(mixed >> 28));
}

/// What an output holds before: nothing that is right.
inline constexpr float nothing = -1;

/// Whether all of `got` is what exact(i) says.
template <class F>
bool all_equal(const std::vector<float>& got, F exact) {
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != exact(i)) return false;
  return true;
}

/// Times ways in turns, each of them checked before and afterwards; the last one is ours. A
/// collective.
/// throws  std::runtime_error, on every rank, if one of them got a wrong result
template <class C>
std::vector<Timing> compare(C& ranks, const std::vector<Way<C>>& ways, std::size_t floats,
                            int rounds, double sample_seconds = 1e-3) {
  std::vector<Move> moves;
  std::vector<Candidate> candidates;
  for (const Way<C>& way : ways) {
    moves.push_back(way.make(ranks, floats));
    candidates.push_back({way.name, moves.back().run});
    moves.back().run();
    require_on_all(ranks, moves.back().is_right(), way.name);
  }
  std::vector<Timing> timings = interleave(ranks, candidates, rounds, sample_seconds);
  for (std::size_t i = 0; i < timings.size(); ++i) {
    require_on_all(ranks, moves[i].is_right(), timings[i].name + ", when timed");
    timings[i].also = described(moves[i].traffic, timings[i].seconds.median);
  }
  return timings;
}

}  // namespace bench

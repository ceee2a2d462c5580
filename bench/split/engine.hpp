#pragma once
// A backend and a dtype behind one interface. Each engine_*.cpp adds those of its library, so what
// the build has is what is linked.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "split/ranks.hpp"
#include "support/interleaved.hpp"

namespace split {

/// A product y[rows, out] = x[rows, in] Wᵀ + b, or the pair in -> out -> in of two such layers.
struct Problem {
  std::size_t rows = 0;
  std::size_t in = 0;
  std::size_t out = 0;
  bool is_pair = false;

  double operations() const {
    return (is_pair ? 4.0 : 2.0) * static_cast<double>(rows) * static_cast<double>(in) *
           static_cast<double>(out);
  }
};

struct Engine {
  std::string backend;
  std::string dtype;
  std::size_t element_bytes = 0;
  int preference = 0;  // the least one of a dtype measures the machine's peak

  /// Unsplit, and the two splits, in so many rounds. `peak` is what peak(ranks) gave. A collective;
  /// what it gives is for rank 0.
  /// throws   std::runtime_error if a split gives another result than one rank, or sends something
  ///          else than planned; the library's errors
  std::function<std::vector<bench::Timing>(Ranks&, const Problem&, int rounds, double peak)>
      measure;

  /// Operations in a second of all ranks together, each with a product of its own. A collective.
  std::function<double(Ranks&)> peak;
};

/// All engines of the program, in the order in which they were linked.
inline std::vector<Engine>& engines() {
  static std::vector<Engine> all;
  return all;
}

}  // namespace split

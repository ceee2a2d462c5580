#pragma once
// A backend and a dtype behind one interface. Each engine_*.cpp adds those of its library, so what
// the build has is what is linked.

#include <atomic>
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

/// How long to measure, and when to give up.
struct Effort {
  int rounds = 15;
  double sample_seconds = 2e-3;             // a sample repeats a short call until it lasts so long
  const std::atomic<bool>* stop = nullptr;  // looked at on rank 0
};

/// What one way to split took. Times are those of one call, in seconds, on all ranks together.
struct Measured {
  std::string split;
  bench::Spread total;          // the model: from whole inputs to whole outputs on every rank
  bench::Spread product;        // the ranks' products alone, all at once
  bench::Spread communication;  // the model's redistributions alone, their copies included
  bench::Spread exposed;        // of each round: total - product
  bench::Spread speedup;        // of each round: total of unsplit / total
  std::size_t planned = 0;      // bytes that ranks pass in, of all ranks together: by the plan
  std::size_t counted = 0;      // and by a counter below the redistributions
  std::size_t on_the_wire = 0;  // bytes sent by ring algorithms, of all ranks together
  std::size_t parameters = 0;   // bytes of parameters on the rank that holds most
  std::size_t memory = 0;       // bytes of the model's memory on that rank
};

struct Engine {
  std::string backend;
  std::string dtype;
  std::size_t element_bytes = 0;
  int preference = 0;  // the least one of a dtype measures the machine's peak

  /// Unsplit, and the two splits. A collective; what it gives is for rank 0. Nothing if stopped.
  /// throws   std::runtime_error if a split gives another result than one rank, or sends something
  ///          else than planned; the library's errors
  std::function<std::vector<Measured>(Ranks&, const Problem&, const Effort&)> measure;

  /// Operations in a second of all ranks together, each with a product of its own. A collective.
  std::function<double(Ranks&)> peak;
};

/// All engines of the program, in the order in which they were linked.
inline std::vector<Engine>& engines() {
  static std::vector<Engine> all;
  return all;
}

}  // namespace split

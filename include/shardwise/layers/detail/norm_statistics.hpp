#pragma once
// The statistics of each row in a normalisation.

#include <cmath>
#include <cstddef>

#include "shardwise/version.hpp"

namespace shardwise::detail {

/// Sums over the features of every row, in memory of type `PerRow`.
template <class PerRow>
struct NormSums {
  PerRow totals;   ///< Σ x; Nothing if rows are not centred
  PerRow squares;  ///< Σ (x - mean)²
};

template <class A>
struct NormRow {
  A mean;
  A scale;

  template <class T>
  constexpr A normalised(T x) const {
    return (static_cast<A>(x) - mean) * scale;
  }
};

/// Mean and scale of rows, read from their sums.
template <bool Centred, class A>
class NormStatistics {
 public:
  template <class PerRow>
  constexpr NormStatistics(const NormSums<PerRow>& sums, std::size_t features, double epsilon)
      : totals_(sums.totals.view().data()),
        squares_(sums.squares.view().data()),
        features_(static_cast<A>(features)),
        epsilon_(static_cast<A>(epsilon)) {}

  constexpr A mean(std::size_t r) const { return Centred ? totals_[r] / features_ : A(0); }

  constexpr NormRow<A> operator[](std::size_t r) const {
    return {mean(r), 1 / std::sqrt(squares_[r] / features_ + epsilon_)};
  }

 private:
  const A* totals_;
  const A* squares_;
  A features_;
  A epsilon_;
};

}  // namespace shardwise::detail

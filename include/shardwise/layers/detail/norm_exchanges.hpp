#pragma once
// The sums of a normalisation of rows, of which ranks may each have a part.

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/detail/norm_loops.hpp"
#include "shardwise/layers/detail/norm_statistics.hpp"
#include "shardwise/layers/detail/row_exchange.hpp"

namespace shardwise::detail {

/// Σ x of each row, if `Centred`, and Σ (x - mean)².
///
/// There are two passes, first the sum and then the squares of the differences: in one pass, Σ x² /
/// N - mean² cancels, and for a mean of 1e4 and a deviation of 1 a float keeps no digit. If
/// rows are split, each pass is an exchange. One exchange of the mean, squares and count of
/// every rank would not be a sum, so it would have no adjoint. A sum has one, and backward needs no
/// exchange of its own.
///
/// Up to factors that are equal on all ranks, the adjoint of the exchange of squares computes Σ g
/// x̂, and that of the exchange of sums Σ g, with g = dy w. Both sums of a row are kept until
/// backward: to compute them again would repeat forward's exchanges.
template <bool Centred>
struct NormExchanges {
  static constexpr std::size_t of_totals = 0;  ///< the exchange of Σ x, if `Centred`
  static constexpr std::size_t of_squares = Centred ? 1 : 0;

  /// As `exchanges` of a layer, each as Sum says.
  template <class Sum>
  using list = std::conditional_t<Centred, std::tuple<Sum, Sum>, std::tuple<Sum>>;

  /// Their shapes, if `rows` is that of one number for each row.
  static constexpr auto shapes(const Shape& rows) {
    std::array<Shape, of_squares + 1> shapes;
    for (Shape& shape : shapes) shape = rows;
    return shapes;
  }

  /// What a layer keeps from forward to backward.
  template <class Frame>
  using sums_of = NormSums<decltype(std::declval<Frame&>().template exchange<0>(
      std::declval<Frame&>().template exchange_input<0>()))>;

  /// Both passes over x, for rows of `count` elements over all ranks.
  template <class Frame, class T>
  static auto sums(Frame& frame, const RowExtents& here, std::size_t count, double epsilon,
                   const T* x) {
    using Rows = NormStatistics<Centred, accumulate_t<T>>;
    sums_of<Frame> sums;
    if constexpr (Centred)
      sums.totals = row_sum<of_totals>(frame, here, NormValue<T>{x, here.columns});
    sums.squares = row_sum<of_squares>(
        frame, here, NormSquare<Rows, T>{Rows(sums, count, epsilon), x, here.columns});
    return sums;
  }
};

}  // namespace shardwise::detail

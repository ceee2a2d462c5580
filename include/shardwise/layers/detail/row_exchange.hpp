#pragma once
// Numbers of each row, combined over the rank's elements of it and over ranks.

#include <cstddef>
#include <utility>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// How a tensor's elements on this rank lie in rows.
struct RowExtents {
  std::size_t rows;
  std::size_t columns;
};

/// The terms a b of the elements of a row; `n` of each.
template <class T>
struct ProductTerms {
  std::size_t n;
  const T* a;
  const T* b;

  constexpr auto operator()(std::size_t r) const {
    using A = accumulate_t<T>;
    return [first = a + r * n, second = b + r * n](std::size_t i) {
      return static_cast<A>(first[i]) * static_cast<A>(second[i]);
    };
  }
};

/// Exchange Index of `frame`: for each row r the terms terms(r)(i) of the rank's elements i of it,
/// combined.
template <std::size_t Index, class Frame, class A, class Terms, class Combine>
auto exchanged_rows(Frame& frame, const RowExtents& here, A first, const Terms& terms,
                    const Combine& combine) {
  auto mine = frame.template exchange_input<Index>();
  reduce_each(frame.backend(), here.rows, here.columns, first, terms, combine,
              PutInto<A>{mine.writable().data()});
  return frame.template exchange<Index>(std::move(mine));
}

/// Exchange Index, with sums.
template <std::size_t Index, class Frame, class Terms>
auto row_sum(Frame& frame, const RowExtents& here, const Terms& terms) {
  return exchanged_rows<Index>(frame, here, accumulate_t<typename Frame::dtype>(0), terms, Plus{});
}

/// The adjoint of exchange Index, with sums.
template <std::size_t Index, class Frame, class Terms>
auto adjoint_row_sum(Frame& frame, const RowExtents& here, const Terms& terms) {
  using A = accumulate_t<typename Frame::dtype>;
  auto mine = frame.template adjoint_input<Index>();
  reduce_each(frame.backend(), here.rows, here.columns, A(0), terms, Plus{},
              PutInto<A>{mine.writable().data()});
  return frame.template exchange_adjoint<Index>(std::move(mine));
}

}  // namespace shardwise::detail

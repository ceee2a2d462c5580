#pragma once
// Two branches, of which one is used twice: y = a * b + b.

#include <array>
#include <cstddef>

#include "shardwise/shardwise.hpp"

namespace sw = shardwise;

// begin: merge
/// y = a * b, element by element.
struct Product : sw::KeepsStream {
  static constexpr sw::Saves saves = sw::Saves::input;

  constexpr sw::Shape output_shape(const std::array<sw::Shape, 2>& x) const {
    if (!(x[0] == x[1])) throw sw::shape_error({"Product is given ", x[0], " and ", x[1]});
    return x[0];
  }

  template <class Frame, class X, class Y>
  void forward(Frame&, const std::array<X, 2>& x, Y y) const {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = x[0][i] * x[1][i];
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame&, const std::array<X, 2>& x, DY dy, const std::array<DX, 2>& dx) const {
    for (std::size_t j = 0; j < 2; ++j)
      for (std::size_t i = 0; i < dx[j].size(); ++i) dx[j][i] = dy[i] * x[1 - j][i];
  }
};
// end: merge

// begin: composition
template <std::size_t In, std::size_t Out>
struct Gated : sw::Composition<sw::At<sw::ColumnParallelLinear<In, Out>, 0>,  // slot 1: a
                               sw::At<sw::ColumnParallelLinear<In, Out>, 0>,  // slot 2: b
                               sw::At<Product, 1, 2>,                         // slot 3: a * b
                               sw::At<sw::Sum, 3, 2>> {};
// end: composition

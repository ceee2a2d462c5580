#pragma once
// Two branches, one of them used twice: y = a * b + b.

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
  void forward(Frame&, const X& x, const Y& y) const {
    const auto& [a, b] = x;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = a[i] * b[i];
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame&, const X& x, const DY& dy, const DX& dx) const {
    const auto& [a, b] = x;
    const auto& [da, db] = dx;
    for (std::size_t i = 0; i < da.size(); ++i) da[i] = dy[i] * b[i];
    for (std::size_t i = 0; i < db.size(); ++i) db[i] = dy[i] * a[i];
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

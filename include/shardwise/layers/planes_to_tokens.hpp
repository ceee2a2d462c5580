#pragma once
// From images to tokens: one for each pixel, whose features are the channels.

#include <concepts>
#include <cstddef>
#include <type_traits>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/layers/detail/whole_planes.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

namespace detail {

/// y[b, i, j] = x[b, j, i] for each b; y has `rows` rows of `columns` elements for each.
template <class T>
struct SwappedAxes {
  std::size_t rows;
  std::size_t columns;
  const T* x;
  T* y;

  constexpr auto operator()(std::size_t row) const {
    const T* const from = x + row / rows * rows * columns + row % rows;
    return [from, apart = rows, to = y + row * columns](std::size_t j) { to[j] = from[j * apart]; };
  }
};

/// Along `context` rows of an image become the tokens of these rows.
struct RowsToTokens {
  template <Layout Offered, Layout Wanted>
  using input_layout = std::conditional_t<std::same_as<Offered, Sharded<Axis::height>>, Offered,
                                          WholePlanes::input_layout<Offered, Wanted>>;
  template <Layout In>
  using output_layout = std::conditional_t<std::same_as<In, Sharded<Axis::height>>,
                                           Sharded<Axis::sequence>, WholePlanes::output_layout<In>>;
};

}  // namespace detail

/// [batch, channel, ...] -> [batch, sequence, feature]: y[b, s, c] = x[b, c, s] for the pixels s of
/// an image in their order in memory, row by row. With a convolution whose stride is its kernel in
/// front, tokens are those of patches.
///
/// layout   Sharded<channel> -> Sharded<feature>;   L -> L for Invariant, Replicated, Partial,
///          Sharded<batch>;   any other split becomes one of these, as for Flatten
/// saves    nothing
/// sends    nothing; along `context`, if its ranks do not divide the rows of an image, which then
///          goes to one of them, two all-to-alls, and back
/// throws   shape_error if x does not begin with batch and channel, or has no axis of space
/// source   Dosovitskiy et al. 2021, section 3.1
struct PlanesToTokens : detail::WholePlanes {
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool keeps_features = true;
  using along_other_axes = detail::RowsToTokens;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0) return x;
    if (x.rank() < 3 || x[0].axis != Axis::batch || x[1].axis != Axis::channel) {
      throw shape_error(
          {"the input is a tensor ", x, ", but PlanesToTokens takes images [batch, channel, ...]"});
    }
    std::size_t pixels = 1;
    for (std::size_t i = 2; i < x.rank(); ++i) {
      pixels = pixels == dynamic || !x[i].known() ? dynamic : pixels * x[i].extent();
    }
    return {x[0], {Axis::sequence, pixels}, {Axis::feature, x[1].units, x[1].grain}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    swap_axes(frame, y.local()[1].extent(), y.columns(), x, y);
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    swap_axes(frame, dy.columns(), dy.local()[1].extent(), dy, dx);
  }
  ///@}

 private:
  template <class Frame, class X, class Y>
  static void swap_axes(Frame& frame, std::size_t rows, std::size_t columns, const X& x,
                        const Y& y) {
    using T = typename Frame::dtype;
    detail::for_each_in_rows(frame.backend(), y.local()[0].extent() * rows, columns,
                             detail::SwappedAxes<T>{rows, columns, x.data(), y.data()});
  }
};

}  // namespace shardwise

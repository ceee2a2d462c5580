#pragma once
// Concatenation of values along one axis.

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/merge.hpp"
#include "shardwise/layers/stream.hpp"

namespace shardwise {

namespace detail {

/// to[r, i] = from[r, i]; the rows of each are a fixed number of elements apart.
template <class T>
struct CopiedRows {
  const T* from;
  std::size_t from_stride;
  T* to;
  std::size_t to_stride;

  constexpr auto operator()(std::size_t row) const {
    return [a = from + row * from_stride, b = to + row * to_stride](std::size_t i) { b[i] = a[i]; };
  }
};

}  // namespace detail

/// y = [a, b, ...] along the axis A: y has the units of a, then those of b, and so on; its units
/// are single elements if the operands' grains differ. All other axes must be equal. The gradient
/// of each operand is its part of dy.
///
/// layout   L -> L, for every L but Partial, Replicated and Sharded<A>: along a split axis, the
///          parts of no rank are contiguous in y. Sharded<A> becomes Replicated if that is wanted,
///          else Invariant. All operands are converted to the layout of the first one
/// sends    nothing
/// throws   shape_error if an operand has no axis A, or differs along another one
/// source   torch.cat
template <Axis A>
struct Concat {
  ///@{
  /// As `Merge` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool adds_features = A == Axis::channel || A == Axis::feature;
  static constexpr bool keeps_features = !adds_features;

  template <Layout Wanted>
  using desired_input_layout = std::conditional_t<std::same_as<Wanted, Sharded<A>>, Invariant,
                                                  detail::stream_t<Wanted, Invariant>>;

  template <Layout Offered, Layout Wanted>
  using input_layout = std::conditional_t<
      std::same_as<Offered, Sharded<A>>,
      std::conditional_t<std::same_as<Wanted, Replicated>, Replicated, Invariant>,
      detail::stream_t<Offered,
                       std::conditional_t<std::same_as<Wanted, Sharded<A>>, Invariant, Wanted>>>;

  template <Layout In>
  using output_layout = In;

  template <std::size_t N>
  constexpr Shape output_shape(const std::array<Shape, N>& in) const {
    Shape y = in[0];
    for (std::size_t n = 1; n < N && y.rank() > 0; ++n) {
      check_beside(y, in[n]);
      y = in[n].rank() == 0 ? in[n] : beside(y, in[n]);
    }
    return y;
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    for_each_part(x, y, [&](const auto& part, auto* whole, const Rows& rows) {
      copy(frame, rows.count, rows.part, part.data(), rows.part, whole, rows.whole);
    });
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    for_each_part(dx, dy, [&](const auto& part, const auto* whole, const Rows& rows) {
      if (part.data() != nullptr)
        copy(frame, rows.count, rows.part, whole, rows.whole, part.data(), rows.part);
    });
  }
  ///@}

 private:
  /// The rows of an operand, and of y.
  struct Rows {
    std::size_t count, part, whole;  // number of rows, and elements of each
  };

  static constexpr void check_beside(const Shape& a, const Shape& b) {
    bool fits = a.has(A) && (b.rank() == 0 || a.rank() == b.rank());
    for (std::size_t i = 0; fits && i < b.rank(); ++i)
      fits = a[i].axis == A ? b[i].axis == A : b[i] == a[i];
    if (!fits) {
      throw shape_error({"a Concat along ", name(A), " is given tensors ", a, " and ", b,
                         ": both must have that axis, and all others must be equal"});
    }
  }

  /// The shape of a and b together.
  static constexpr Shape beside(const Shape& a, const Shape& b) {
    Shape y = a;
    Dim& dim = y[a.find(A)];
    const Dim& more = b[a.find(A)];
    if (!dim.known() || !more.known()) {
      dim.units = dynamic;
    } else if (dim.grain == more.grain) {
      dim.units += more.units;
    } else {
      dim = {A, dim.extent() + more.extent()};
    }
    return y;
  }

  /// Calls f(part, position of the part's first row in `whole`, rows) for every operand.
  template <class Parts, class Whole, class F>
  static void for_each_part(const Parts& parts, const Whole& whole, const F& f) {
    if (whole.size() == 0) return;
    const Shape& shape = whole.local();
    const std::size_t position = shape.find(A);
    Rows rows{shape.elements(0, position), 0, shape.elements(position, shape.rank())};
    auto* begin = whole.data();
    const auto one = [&](const auto& part) {
      rows.part = part.local().elements(position, shape.rank());
      f(part, begin, rows);
      begin += rows.part;
    };
    std::apply([&](const auto&... part) { (one(part), ...); }, parts);
  }

  template <class Frame, class T>
  static void copy(Frame& frame, std::size_t rows, std::size_t elements, const T* from,
                   std::size_t from_stride, T* to, std::size_t to_stride) {
    detail::for_each_in_rows(frame.backend(), rows, elements,
                             detail::CopiedRows<T>{from, from_stride, to, to_stride});
  }
};

/// "Concat<channel>".
template <Axis A>
struct NameOf<Concat<A>> {
  static std::string name() { return "Concat<" + std::string(shardwise::name(A)) + '>'; }
};

}  // namespace shardwise

#pragma once
// Softmax over the features of each row.

#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <tuple>
#include <type_traits>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/detail/norm_loops.hpp"
#include "shardwise/layers/detail/row_exchange.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

namespace detail {

/// Of one number for each row; it moves nothing if ranks have whole rows.
template <Layout In>
using row_redistribution_t =
    std::conditional_t<std::same_as<In, Sharded<Axis::feature>>, Redistribute<Partial, Replicated>,
                       Redistribute<In, In>>;

/// e^(x - largest of the row), exactly 0 for minus infinity.
template <class T>
struct SoftmaxTerms {
  using A = accumulate_t<T>;

  const T* x;
  std::size_t n;
  const A* largest;

  constexpr auto operator()(std::size_t r) const {
    return [row = x + r * n, most = largest[r]](std::size_t i) {
      return exponential(static_cast<A>(row[i]) - most);
    };
  }
};

/// y = e^(x - largest) / Σ e^(x - largest).
template <class T>
struct SoftmaxOutput {
  using A = accumulate_t<T>;

  SoftmaxTerms<T> terms;
  const A* sums;
  T* y;

  constexpr auto operator()(std::size_t r) const {
    return [term = terms(r), to = y + r * terms.n, factor = 1 / sums[r]](std::size_t i) {
      to[i] = static_cast<T>(term(i) * factor);
    };
  }
};

/// dx = y (dy - Σ dy y).
template <class T>
struct SoftmaxInputGradient {
  ProductTerms<T> of;  ///< y dy
  const accumulate_t<T>* sums;
  T* dx;

  constexpr auto operator()(std::size_t r) const {
    return [y = of.a + r * of.n, dy = of.b + r * of.n, to = dx + r * of.n,
            sum = sums[r]](std::size_t i) {
      using A = accumulate_t<T>;
      to[i] = static_cast<T>(static_cast<A>(y[i]) * (static_cast<A>(dy[i]) - sum));
    };
  }
};

}  // namespace detail

/// y = e^x / Σ e^x over the features of each row: the innermost axis, which must be `feature`. The
/// largest feature of the row is subtracted first, so nothing overflows. A row of nothing but minus
/// infinity is NaN, as in PyTorch. Behind a model whose loss is a CrossEntropy leave it away: that
/// takes logits.
///
/// layout   L -> L, for every L but Partial
/// saves    y
/// sends    Sharded<feature>  forward two all-reduces of one number a row, a maximum and a sum;
///                            backward one
///          else              nothing
/// throws   shape_error if the innermost axis is not feature
/// source   torch.nn.Softmax with dim=-1
struct Softmax : KeepsLayout {
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::output;
  static constexpr bool in_place = true;

  template <Layout In>
  using exchanges = std::tuple<Exchange<detail::row_redistribution_t<In>, Reduction::max>,
                               Exchange<detail::row_redistribution_t<In>>>;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0 || x.back().axis == Axis::feature) return x;
    throw shape_error({"the input is a tensor ", x,
                       ", but a Softmax is over rows of features: the innermost axis must be "
                       "feature"});
  }

  constexpr std::array<Shape, 2> exchange_shapes(const Shape& x) const {
    return {x.without_back(), x.without_back()};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    using A = accumulate_t<T>;
    const detail::RowExtents here{x.rows(), x.columns()};
    const auto largest =
        detail::exchanged_rows<0>(frame, here, -std::numeric_limits<A>::infinity(),
                                  detail::NormValue<T>{x.data(), here.columns}, detail::Largest{});
    const detail::SoftmaxTerms<T> terms{x.data(), here.columns, largest.view().data()};
    const auto sums = detail::row_sum<1>(frame, here, terms);
    detail::for_each_in_rows(frame.backend(), here.rows, here.columns,
                             detail::SoftmaxOutput<T>{terms, sums.view().data(), y.data()});
  }

  template <class Frame, class Y, class DY, class DX>
  void backward(Frame& frame, const Y& y, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    const detail::RowExtents here{y.rows(), y.columns()};
    const detail::ProductTerms<T> slopes{here.columns, y.data(), dy.data()};
    const auto sums = detail::adjoint_row_sum<1>(frame, here, slopes);
    detail::for_each_in_rows(
        frame.backend(), here.rows, here.columns,
        detail::SoftmaxInputGradient<T>{slopes, sums.view().data(), dx.data()});
  }
  ///@}
};

}  // namespace shardwise

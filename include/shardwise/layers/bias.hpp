#pragma once
// A vector that is added to each row.

#include <array>
#include <cstddef>
#include <tuple>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/row_norm.hpp"
#include "shardwise/layers/sized.hpp"

namespace shardwise {

namespace detail {

/// y = x + b.
template <class T>
struct Biased {
  std::size_t n;
  const T* x;
  const T* bias;
  T* y;

  constexpr auto operator()(std::size_t r) const {
    return [*this, first = r * n](std::size_t i) {
      using A = accumulate_t<T>;
      y[first + i] = static_cast<T>(static_cast<A>(x[first + i]) + static_cast<A>(bias[i]));
    };
  }
};

}  // namespace detail

/// y = x + b, on the N features of each row: the innermost axis, which must be `feature`. For a
/// bias that is not that of the layer before it, such as behind a weight that is borrowed:
///
///     Sequential<Borrows<Tag, ColumnParallelLinear<N, V, false>>, Bias<V>>
///
///                    x per rank       b per rank   its gradient owes
/// Invariant          [..., N]         [N]          nothing
/// Sharded<feature>   [..., N/P]       [N/P]        nothing
/// another            a share of rows  [N]          an all-reduce
///
/// layout   L -> L, for every L but Partial: each rank would add b to its summand
/// b begins as zeros.
/// saves    nothing
/// sends    nothing
/// throws   shape_error if x has another innermost axis or extent than N features
template <std::size_t N>
class Bias : public KeepsLayout, public Sized<N> {
 public:
  using Sized<N>::Sized;
  using Sized<N>::in;

  /// The same layer with its size in the object.
  constexpr auto as_dynamic() const { return Bias<dynamic>(in()); }

  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool in_place = true;

  template <Layout In>
  using parameters = std::tuple<detail::NormParameter<In>>;

  constexpr Shape output_shape(const Shape& x) const {
    return detail::rows_of_features(x, in(), "a Bias is added to");
  }

  constexpr auto parameter_specs(const Shape& x) const {
    return std::array{ParameterSpec{"bias", Shape{output_shape(x).back()}}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    const auto [bias] = frame.parameters();
    detail::for_each_in_rows(
        frame.backend(), x.rows(), x.columns(),
        detail::Biased<typename Frame::dtype>{x.columns(), x.data(), bias.data(), y.data()});
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    auto& backend = frame.backend();
    const auto [gradient] = frame.gradients();
    detail::put_column_sums(backend,
                            detail::SummedRows<T>{dy.rows(), dy.columns(), dy.columns(), dy.data()},
                            frame.write(), gradient.data());
    if constexpr (Frame::input_gradient) detail::copy(backend, dy.data(), dy.size(), dx.data());
  }
  ///@}
};

}  // namespace shardwise

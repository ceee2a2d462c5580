#pragma once
// Normalisation of each head of a token by the root of its mean square.

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/detail/norm_loops.hpp"
#include "shardwise/layers/detail/norm_statistics.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/row_norm.hpp"
#include "shardwise/layers/sized.hpp"

namespace shardwise {

namespace detail {

/// The scales of heads, read from the sums of their squares.
template <class A>
struct HeadScales {
  const A* squares;
  A size;
  A epsilon;

  static constexpr A mean(std::size_t) { return A(0); }
  constexpr NormRow<A> operator[](std::size_t head) const {
    return {A(0), 1 / std::sqrt(squares[head] / size + epsilon)};
  }
};

}  // namespace detail

/// y = x / sqrt(Σ x² / Size + epsilon) w over the Size features of each head, with one w for all
/// heads: RmsNorm whose rows are heads. The grain of x's features is the size of a head, see
/// HeadLinear.
///
/// layout           L -> L, for every L but Partial
/// gradient owes    an all-reduce of w's, unless L is Invariant: ranks have other heads or tokens
/// saves    x
/// sends    nothing
/// throws   shape_error if the innermost axis is not feature in units of Size
/// source   Dehghani et al. 2023, section 2; Qwen Team 2025 (Qwen3)
template <std::size_t Size>
class HeadNorm : public KeepsLayout, public detail::NormSized<Size> {
  using detail::NormSized<Size>::epsilon_;

 public:
  using detail::NormSized<Size>::NormSized;
  using detail::NormSized<Size>::in;

  /// The same layer with its size in the object.
  constexpr auto as_dynamic() const { return HeadNorm<dynamic>(in(), Epsilon{epsilon_}); }

  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::input;
  static constexpr bool token_by_token = true;
  static constexpr bool in_place = true;
  static constexpr std::size_t in_features = dynamic;

  template <Layout In>
  using parameters = std::tuple<
      ParameterUse<Invariant, std::conditional_t<std::same_as<In, Invariant>, In, Replicated>>>;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0 || (x.back().axis == Axis::feature && x.back().grain == in())) return x;
    throw shape_error({"the input is a tensor ", x, ", but the layer normalises heads of ", in(),
                       " features: the innermost axis must be feature heads*", in()});
  }

  constexpr auto parameter_specs(const Shape&) const {
    return std::array{ParameterSpec{"weight", {{Axis::feature, in()}}, init::ones}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    using Rows = detail::HeadScales<accumulate_t<T>>;
    const auto [weight] = frame.parameters();
    const Buffer memory = sums(frame, x);
    detail::for_each_in_rows(
        frame.backend(), heads(x), in(),
        detail::NormOutput<true, false, Rows, T>{scales<T>(memory), in(), x.data(), weight.data(),
                                                 nullptr, y.data()});
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    using A = accumulate_t<T>;
    using Rows = detail::HeadScales<A>;
    const auto [weight] = frame.parameters();
    const auto [gradient] = frame.gradients();
    const Buffer memory = sums(frame, x);
    const Rows rows = scales<T>(memory);
    detail::put_norm_gradients(
        frame.backend(), heads(x),
        detail::NormGradientTerms<Rows, T>{rows, in(), x.data(), dy.data()},
        detail::PutNormGradient<false, T>{frame.write(), gradient.data(), nullptr});
    if constexpr (Frame::input_gradient) {
      const detail::NormSlope<true, T> slope{dy.data(), weight.data(), in()};
      const Buffer along =
          row_sums(frame, x, detail::NormSlopeAlong<true, Rows, T>{rows, slope, x.data()});
      detail::for_each_in_rows(
          frame.backend(), heads(x), in(),
          detail::NormInputGradient<false, true, Rows, T>{rows, slope, static_cast<A>(in()),
                                                          static_cast<const A*>(along.data()),
                                                          nullptr, x.data(), dx.data()});
    }
  }
  ///@}

 private:
  template <class X>
  std::size_t heads(const X& x) const {
    return x.size() / in();
  }

  template <class T>
  detail::HeadScales<accumulate_t<T>> scales(const Buffer& squares) const {
    using A = accumulate_t<T>;
    return {static_cast<const A*>(squares.data()), static_cast<A>(in()), static_cast<A>(epsilon_)};
  }

  /// Σ x² of each head.
  template <class Frame, class X>
  Buffer sums(Frame& frame, const X& x) const {
    using T = typename Frame::dtype;
    using Rows = detail::HeadScales<accumulate_t<T>>;
    return row_sums(frame, x, detail::NormSquare<Rows, T>{Rows{}, x.data(), in()});
  }

  /// The sums of terms(head)(i) over the features i of each head.
  template <class Frame, class X, class Terms>
  Buffer row_sums(Frame& frame, const X& x, const Terms& terms) const {
    using A = accumulate_t<typename Frame::dtype>;
    Buffer memory = frame.take(heads(x) * sizeof(A));
    detail::reduce_each(frame.backend(), heads(x), in(), A(0), terms, detail::Plus{},
                        detail::PutInto<A>{static_cast<A*>(memory.data())});
    return memory;
  }
};

}  // namespace shardwise

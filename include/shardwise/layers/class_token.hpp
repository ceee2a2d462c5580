#pragma once
// A learned token in front of each sequence.

#include <array>
#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/layers/detail/table_loops.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/sized.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

namespace detail {

/// Row r of y: the token in front of each sample, if `before` is 1 and not 0, and the sample's
/// `here` rows behind it.
template <class T>
struct WithClassToken {
  std::size_t before;
  std::size_t here;
  std::size_t columns;
  const T* token;
  const T* x;
  T* y;

  constexpr TakenRow<T> operator()(std::size_t r) const {
    const std::size_t sample = r / (here + before), row = r % (here + before);
    const T* const from = row < before ? token : x + (sample * here + row - before) * columns;
    return {from, T(0), y + r * columns};
  }
};

/// Row r of dx: that of dy, in which `before` rows stand in front of the `here` rows of each
/// sample.
template <class T>
struct WithoutClassToken {
  std::size_t before;
  std::size_t here;
  std::size_t columns;
  const T* dy;
  T* dx;

  constexpr TakenRow<T> operator()(std::size_t r) const {
    return {dy + (r + (r / here + 1) * before) * columns, T(0), dx + r * columns};
  }
};

/// Along `context` the last token of a rank moves on to the next one.
struct TokensMoveOn {
  template <Layout Offered, Layout>
  using input_layout =
      std::conditional_t<std::same_as<Offered, Sharded<Axis::sequence>>,
                         Haloed<Axis::sequence, Window{.before = 1}>, Sharded<Axis::batch>>;
  template <Layout In>
  using output_layout = std::conditional_t<HaloedLayout<In>, Sharded<Axis::sequence>, In>;
};

}  // namespace detail

/// [batch, sequence, N] -> [batch, sequence + 1, N]: a token of N learned features in front of each
/// sequence.
///
/// layout           L -> L               W stored -> used           gradient owes
///                  Invariant            Invariant                  nothing
///                  Sharded<feature>     Sharded<feature>           nothing
///                  Sharded<batch>       Invariant -> Replicated    all-reduce
///
/// Any other layout becomes the preferred one among these, or Invariant: a split sequence would be
/// cut anew. W begins as zeros.
/// saves    nothing
/// sends    nothing; along `context` tokens from ranks to those behind them, and their gradients
///          back
/// throws   shape_error if x is not [batch, sequence, N]
/// source   Devlin et al. 2019, section 3; Dosovitskiy et al. 2021, section 3.1
template <std::size_t N>
class ClassToken : public KeepsOneOf<Invariant, Sharded<Axis::batch>, Sharded<Axis::feature>>,
                   public Sized<N> {
 public:
  using Sized<N>::Sized;
  using Sized<N>::in;

  /// The same layer with its size in the object.
  constexpr auto as_dynamic() const { return ClassToken<dynamic>(in()).initialized_by(rule_); }

  /// The same layer with other initial values.
  constexpr ClassToken initialized_by(init::Rule rule) const {
    ClassToken other = *this;
    other.rule_ = rule;
    return other;
  }

  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool keeps_features = true;
  using along_other_axes = detail::TokensMoveOn;

  template <Layout In>
  using parameters =
      std::tuple<std::conditional_t<std::same_as<In, Sharded<Axis::batch>>,
                                    ParameterUse<Invariant, Replicated>, ParameterUse<In, In>>>;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0) return x;
    if (x.rank() != 3 || x[0].axis != Axis::batch || x[1].axis != Axis::sequence ||
        x[2].axis != Axis::feature || (x[2].known() && x[2].extent() != in())) {
      throw shape_error({"the input is a tensor ", x, ", but a ClassToken of ", in(),
                         " features stands in front of tokens [batch, sequence, feature] with that "
                         "extent"});
    }
    return {x[0], {Axis::sequence, x[1].known() ? x[1].extent() + 1 : dynamic}, x[2]};
  }

  constexpr auto parameter_specs(const Shape& x) const {
    const Dim features = x.rank() > 0 ? x.back() : Dim{Axis::feature, in()};
    return std::array{ParameterSpec{
        "weight", {{Axis::feature, features.units, features.grain}}, rule_, {1, in()}}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    const auto [token] = frame.parameters();
    detail::for_each_in_rows(
        frame.backend(), y.rows(), y.columns(),
        detail::WithClassToken<T>{before(frame), x.local()[1].extent(), y.columns(), token.data(),
                                  x.data(), y.data()});
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    const auto [gradient] = frame.gradients();
    const std::size_t columns = dy.columns(), rows = dy.local()[1].extent();
    const std::size_t samples = dy.local()[0].extent() * before(frame);
    detail::put_column_sums(frame.backend(),
                            detail::SummedRows<T>{samples, columns, rows * columns, dy.data()},
                            frame.write(), gradient.data());
    if constexpr (Frame::input_gradient) {
      detail::for_each_in_rows(frame.backend(), dx.rows(), columns,
                               detail::WithoutClassToken<T>{before(frame), dx.local()[1].extent(),
                                                            columns, dy.data(), dx.data()});
    }
  }
  ///@}

 private:
  /// Rows that the rank has in front of those of its input: 0 if another rank along `context` has
  /// them.
  template <class Frame>
  static constexpr std::size_t before(const Frame& frame) {
    return frame.rows_begin().out == 0 ? 1 : 0;
  }

  init::Rule rule_ = init::zeros;
};

}  // namespace shardwise

#pragma once
// The common part of LayerNorm, RmsNorm and HeadNorm: the normalisation of rows, whether ranks have
// whole rows or not.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/layers/detail/norm_exchanges.hpp"
#include "shardwise/layers/detail/norm_loops.hpp"
#include "shardwise/layers/detail/norm_statistics.hpp"
#include "shardwise/layers/detail/row_exchange.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/sized.hpp"
#include "shardwise/layers/weight_and_bias.hpp"

namespace shardwise {

/// The parameters of a normalisation: one number for each feature in each of them.
enum class Affine : std::uint8_t { none, weight, weight_and_bias };

namespace detail {

/// The number of parameters.
constexpr std::size_t count_of(Affine affine) { return static_cast<std::size_t>(affine); }

}  // namespace detail

/// Added to the mean of the squares, so that a constant row is not divided by zero.
struct Epsilon {
  double value = 1e-5;  ///< at least 0
};

namespace detail {

/// throws  argument_error for an epsilon below 0, or NaN
constexpr double checked(Epsilon epsilon) {
  if (!(epsilon.value >= 0)) {
    throw argument_error({"the epsilon of a normalisation is ", epsilon.value,
                          "; it is added to a mean of squares and must be at least 0"});
  }
  return epsilon.value;
}

/// The size of a normalisation, as `Sized` says, and its epsilon.
template <std::size_t N>
class NormSized : public Sized<N> {
 public:
  using Sized<N>::Sized;

  /// If the size is in the type. Throws argument_error for an epsilon below 0.
  constexpr explicit NormSized(Epsilon epsilon) requires(N != dynamic)
      : epsilon_(checked(epsilon)) {}

  /// If it is `dynamic`.
  constexpr NormSized(std::size_t size, Epsilon epsilon) requires(N == dynamic)
      : Sized<N>(size), epsilon_(checked(epsilon)) {}

 protected:
  double epsilon_ = Epsilon{}.value;
};

/// The parameters of a normalisation for an input in the layout In.
template <Layout In>
using NormParameter = ParameterUse<
    std::conditional_t<std::same_as<In, Sharded<Axis::feature>>, In, Invariant>,
    std::conditional_t<std::same_as<In, Sharded<Axis::feature>> || std::same_as<In, Invariant>, In,
                       Replicated>>;

/// A sum over the features of each row; no communication if ranks have whole rows.
template <Layout In>
using NormSum =
    Exchange<std::conditional_t<std::same_as<In, Sharded<Axis::feature>>,
                                Redistribute<Partial, Replicated>, Redistribute<In, In>>>;

/// Rows of N features, the innermost axis of x.
template <std::size_t N>
struct FeatureRows : NormSized<N> {
  using NormSized<N>::NormSized;
  using NormSized<N>::in;

  template <Layout In>
  using parameter = NormParameter<In>;
  template <Layout In>
  using sum = NormSum<In>;

  constexpr Shape output_shape(const Shape& x) const {
    return rows_of_features(x, in(), "the layer normalises");
  }

 protected:
  /// The axis of a parameter.
  static constexpr Dim features(const Shape& x) { return x.back(); }
  /// The shape of one number for each row.
  static constexpr Shape one_of_each_row(const Shape& x) { return x.without_back(); }

  template <class X>
  static RowExtents here(const X& x) {
    return {x.rows(), x.columns()};
  }
};

/// y = x̂ w + b with x̂ = (x - mean) scale and scale = 1 / sqrt(Σ (x - mean)² / N + epsilon), over
/// the N features of each of the rows that the base Of says; mean is Σ x / N if `Centred`, else 0.
///
/// Backward, with g = dy w: dx = scale (g - Σ g / N - x̂ Σ g x̂ / N), without Σ g if not `Centred`.
template <bool Centred, Affine A, class Of>
class NormOfRows : public KeepsLayout, public Of, public WeightAndBias<count_of(A)> {
  using NormOfRows::WeightAndBias::has_bias;
  using NormOfRows::WeightAndBias::has_weight;

  using Exchanges = NormExchanges<Centred>;

 public:
  static constexpr Saves saves = Saves::input;
  static constexpr bool in_place = true;

  using Of::in;
  using Of::Of;
  using Of::output_shape;

  template <Layout In>
  using parameters = typename NormOfRows::template uses<typename Of::template parameter<In>,
                                                        typename Of::template parameter<In>>;

  template <Layout In>
  using exchanges = typename Exchanges::template list<typename Of::template sum<In>>;

  constexpr auto parameter_specs(const Shape& x) const {
    const Shape features{this->features(output_shape(x))};
    return NormOfRows::specs({"weight", features, init::ones}, {"bias", features});
  }

  constexpr auto exchange_shapes(const Shape& x) const {
    return Exchanges::shapes(this->one_of_each_row(x));
  }

  template <class Frame>
  using saved = typename Exchanges::template sums_of<Frame>;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    const auto [count, size] = this->here(x);
    auto sums = Exchanges::sums(frame, {count, size}, in(), epsilon_, x.data());
    const auto [weight, bias] = NormOfRows::values_of(frame);
    for_each_in_rows(frame.backend(), count, size,
                     NormOutput<has_weight, has_bias, Rows<Frame>, T>{
                         statistics<Frame>(sums), size, x.data(), weight, bias, y.data()});
    if (frame.training()) frame.saved() = std::move(sums);
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    using Sum = accumulate_t<T>;
    const auto sums = std::exchange(frame.saved(), {});
    const Rows<Frame> rows = statistics<Frame>(sums);
    const RowExtents here = this->here(x);
    const NormSlope<has_weight, T> slope{dy.data(), NormOfRows::values_of(frame)[0], here.columns};
    const auto along = adjoint_row_sum<Exchanges::of_squares>(
        frame, here, NormSlopeAlong<has_weight, Rows<Frame>, T>{rows, slope, x.data()});
    std::remove_const_t<decltype(along)> level;
    if constexpr (Centred) level = adjoint_row_sum<Exchanges::of_totals>(frame, here, slope);
    if constexpr (has_weight) {
      const auto [weight, bias] = NormOfRows::gradients_of(frame);  // Σ dy x̂ and Σ dy
      put_norm_gradients(frame.backend(), here.rows,
                         NormGradientTerms<Rows<Frame>, T>{rows, here.columns, x.data(), dy.data()},
                         PutNormGradient<has_bias, T>{frame.write(), weight, bias});
    }
    if constexpr (Frame::input_gradient) {
      for_each_in_rows(frame.backend(), here.rows, here.columns,
                       NormInputGradient<Centred, has_weight, Rows<Frame>, T>{
                           rows, slope, static_cast<Sum>(in()), along.view().data(),
                           level.view().data(), x.data(), dx.data()});
    }
  }

 protected:
  using Of::epsilon_;

 private:
  template <class Frame>
  using Rows = NormStatistics<Centred, accumulate_t<typename Frame::dtype>>;

  template <class Frame, class PerRow>
  Rows<Frame> statistics(const NormSums<PerRow>& sums) const {
    return {sums, in(), epsilon_};
  }
};

/// What LayerNorm and RmsNorm compute.
template <bool Centred, std::size_t N, Affine A>
struct RowNorm : NormOfRows<Centred, A, FeatureRows<N>> {
  using NormOfRows<Centred, A, FeatureRows<N>>::NormOfRows;

  /// The same layer with its size in the object.
  constexpr auto as_dynamic() const {
    return RowNorm<Centred, dynamic, A>(this->in(), Epsilon{this->epsilon_});
  }
};

/// "LayerNorm<512>", "RmsNorm<512, no weight>".
std::string norm_name(const char* kind, std::size_t features, Affine affine, Affine by_default);

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE std::string norm_name(const char* kind, std::size_t features, Affine affine,
                                       Affine by_default) {
  const std::string text = kind + ('<' + size_name(features));
  if (affine == by_default) return text + '>';
  if (affine == Affine::none) return text + ", no weight>";
  return text + (affine == Affine::weight ? ", no bias>" : ", bias>");
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

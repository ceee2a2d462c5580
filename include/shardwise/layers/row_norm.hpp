#pragma once
// The common part of LayerNorm and RmsNorm: the normalisation of rows, whether their features are
// split or not.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "shardwise/backend/detail/rows.hpp"
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

/// The number of parameters.
constexpr std::size_t count_of(Affine affine) { return static_cast<std::size_t>(affine); }

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

/// y = x̂ w + b with x̂ = (x - mean) scale and scale = 1 / sqrt(Σ (x - mean)² / N + epsilon), over
/// the N features of each row; mean is Σ x / N if `Centred`, else 0.
///
/// Backward, with g = dy w: dx = scale (g - Σ g / N - x̂ Σ g x̂ / N), without Σ g if not `Centred`.
template <bool Centred, std::size_t N, Affine A>
class RowNorm : public KeepsLayout, public NormSized<N>, public WeightAndBias<count_of(A)> {
  using RowNorm::WeightAndBias::has_bias;
  using RowNorm::WeightAndBias::has_weight;

  using Exchanges = NormExchanges<Centred>;

 public:
  static constexpr Saves saves = Saves::input;
  static constexpr bool token_by_token = true;
  static constexpr bool in_place = true;

  using NormSized<N>::NormSized;
  using NormSized<N>::in;

  /// The same layer with its size in the object.
  constexpr auto as_dynamic() const {
    return RowNorm<Centred, dynamic, A>(in(), Epsilon{epsilon_});
  }

  template <Layout In>
  using parameters = typename RowNorm::template uses<NormParameter<In>, NormParameter<In>>;

  template <Layout In>
  using exchanges = typename Exchanges::template list<NormSum<In>>;

  constexpr Shape output_shape(const Shape& x) const {
    return rows_of_features(x, in(), "the layer normalises");
  }

  constexpr auto parameter_specs(const Shape& x) const {
    const Shape features{output_shape(x).back()};
    return RowNorm::specs({"weight", features, init::ones}, {"bias", features});
  }

  constexpr auto exchange_shapes(const Shape& x) const {
    return Exchanges::shapes(x.without_back());
  }

  template <class Frame>
  using kept = typename Exchanges::template sums_of<Frame>;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    auto sums = Exchanges::sums(frame, here(x), in(), epsilon_, x.data());
    const auto [weight, bias] = RowNorm::values_of(frame);
    for_each_in_rows(frame.backend(), x.rows(), x.columns(),
                     NormOutput<has_weight, has_bias, Rows<Frame>, T>{
                         statistics<Frame>(sums), x.columns(), x.data(), weight, bias, y.data()});
    if (frame.training()) frame.kept() = std::move(sums);
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    using Sum = accumulate_t<T>;
    const auto sums = std::exchange(frame.kept(), {});
    const Rows<Frame> rows = statistics<Frame>(sums);
    const NormSlope<has_weight, T> slope{dy.data(), RowNorm::values_of(frame)[0], dy.columns()};
    const auto along = adjoint_row_sum<Exchanges::of_squares>(
        frame, here(x), NormSlopeAlong<has_weight, Rows<Frame>, T>{rows, slope, x.data()});
    std::remove_const_t<decltype(along)> level;
    if constexpr (Centred) level = adjoint_row_sum<Exchanges::of_totals>(frame, here(x), slope);
    if constexpr (has_weight) write_gradients(frame, rows, x, dy);
    if constexpr (Frame::input_gradient) {
      for_each_in_rows(frame.backend(), x.rows(), x.columns(),
                       NormInputGradient<Centred, has_weight, Rows<Frame>, T>{
                           rows, slope, static_cast<Sum>(in()), along.view().data(),
                           level.view().data(), x.data(), dx.data()});
    }
  }

 private:
  template <class Frame>
  using Rows = NormStatistics<Centred, accumulate_t<typename Frame::dtype>>;

  template <class X>
  static RowExtents here(const X& x) {
    return {x.rows(), x.columns()};
  }

  template <class Frame, class PerRow>
  Rows<Frame> statistics(const NormSums<PerRow>& sums) const {
    return {sums, in(), epsilon_};
  }

  /// dw = Σ dy x̂ and db = Σ dy over the rank's rows.
  template <class Frame, class X, class DY>
  static void write_gradients(Frame& frame, const Rows<Frame>& rows, const X& x, const DY& dy) {
    using T = typename Frame::dtype;
    const auto [weight, bias] = RowNorm::gradients_of(frame);
    put_norm_gradients(frame.backend(), x.rows(),
                       NormGradientTerms<Rows<Frame>, T>{rows, x.columns(), x.data(), dy.data()},
                       PutNormGradient<has_bias, T>{frame.write(), weight, bias});
  }

  using NormSized<N>::epsilon_;
};

/// "LayerNorm<512>", "RmsNorm<512, no weight>".
inline std::string norm_name(const char* kind, std::size_t features, Affine affine,
                             Affine by_default) {
  const std::string text = kind + ('<' + size_name(features));
  if (affine == by_default) return text + '>';
  if (affine == Affine::none) return text + ", no weight>";
  return text + (affine == Affine::weight ? ", no bias>" : ", bias>");
}

}  // namespace detail

}  // namespace shardwise

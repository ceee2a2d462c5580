#pragma once
// A ReLU whose slope below 0 is learned.

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>

#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/detail/channels.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/sized.hpp"

namespace shardwise {

namespace detail {

/// 1/4: the default of torch.nn.PReLU. He et al. 2015, section 2.1.
inline Initializer quarter(const Fans&) { return {Initializer::Kind::constant, 0.25}; }

/// out = x > 0 ? from : w from: y with x in place of from, dx with dy.
template <class T>
struct PReluElements {
  const T* weight;
  const T* x;
  const T* from;
  T* to;

  constexpr auto operator()(std::size_t c) const {
    using A = accumulate_t<T>;
    return [*this, w = static_cast<A>(weight[c])](std::size_t i) {
      const A value = static_cast<A>(from[i]);
      to[i] = static_cast<T>(select(static_cast<A>(x[i]) > A(0), value, w * value));
    };
  }
};

/// The term of element i in dw: x dy for x up to 0.
template <class T>
struct PReluTerms {
  const T* x;
  const T* dy;

  constexpr auto operator()(std::size_t) const {
    return [*this](std::size_t i) {
      const double in = number(x[i]);
      return select(in > 0, 0.0, in * number(dy[i]));
    };
  }
};

}  // namespace detail

/// y = x for x > 0, else w x, with one w for all elements, `PRelu<>`, or one for each of N channels
/// of [batch, channel, ...], or N features of [..., feature] without a channel axis: `PRelu<64>`,
/// `PRelu<dynamic>(64)`. w begins as 1/4. The slope at 0 is w.
///
///                      w per rank: N    gradient owes     w: one        gradient owes
/// Invariant            [N]              nothing           [1]           nothing
/// Sharded<channel>, <feature>   [N/P]   nothing           [1]           an all-reduce
/// any other split      [N]              an all-reduce     [1]           an all-reduce
///
/// `PRelu<dynamic>(1)` is for one channel: with one w for all elements, as torch.nn.PReLU has it by
/// default, write `PRelu<>`.
///
/// layout   L -> L, for every L but Partial
/// saves    x
/// sends    nothing
/// throws   shape_error if x has another number of channels or features than N, or both axes
/// source   He et al. 2015, section 2.1; torch.nn.PReLU
template <std::size_t N = 1>
class PRelu : public KeepsLayout, public Sized<N> {
  static_assert(N > 0, "PRelu<N> has a weight for each of at least one channel or feature.");
  static constexpr bool is_one = N == 1;

 public:
  using Sized<N>::Sized;

  ///@{
  /// N, or `dynamic`, also with one weight: that takes any number of features.
  static constexpr std::size_t in_features = is_one ? dynamic : N;
  static constexpr std::size_t out_features = in_features;
  ///@}

  /// The number of channels or features, with a weight for each.
  constexpr std::size_t in() const requires(N != 1) { return Sized<N>::in(); }

  /// The same layer with its size in the object.
  constexpr auto as_dynamic() const requires(N != 1) { return PRelu<dynamic>(in()); }

  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::input;
  static constexpr bool in_place = true;

  template <Layout In>
  using parameters = std::tuple<std::conditional_t<
      is_one,
      ParameterUse<Invariant, std::conditional_t<std::same_as<In, Invariant>, In, Replicated>>,
      detail::ChannelParameter<In>>>;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() > 0 && !is_one)
      detail::require_channels(x, "has a slope for each of", Sized<N>::in());
    return x;
  }

  constexpr auto parameter_specs(const Shape& x) const {
    Shape weights{{Axis::channel, 1}};
    if constexpr (!is_one) weights = Shape{x[detail::channel_axis(output_shape(x))]};
    return std::array{ParameterSpec{"weight", weights, detail::quarter}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    apply(frame, x, x.data(), y.data());
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    detail::put_channel_gradient(frame, weights_on(x), detail::PReluTerms<T>{x.data(), dy.data()},
                                 frame.template gradient_data<0>());
    if constexpr (Frame::input_gradient) apply(frame, x, dy.data(), dx.data());
  }
  ///@}

 private:
  /// The elements of each weight.
  template <class X>
  static detail::ChannelsOf weights_on(const X& x) {
    if constexpr (is_one) return {1, 1, x.size()};
    return {x.local(), detail::channel_axis(x.local())};
  }

  template <class Frame, class X, class T>
  static void apply(Frame& frame, const X& x, const T* from, T* to) {
    detail::for_each_in_channels(
        frame.backend(), weights_on(x),
        detail::PReluElements<T>{frame.template parameter_data<0>(), x.data(), from, to});
  }
};

/// "PRelu<64>", or "PRelu" with one weight.
template <std::size_t N>
struct NameOf<PRelu<N>> {
  static std::string name() { return N == 1 ? "PRelu" : "PRelu<" + detail::size_name(N) + '>'; }
};

}  // namespace shardwise

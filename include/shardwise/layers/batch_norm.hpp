#pragma once
// Batch normalisation: subtracts the mean of every channel or feature and scales it to variance 1.

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/detail/batch_norm_loops.hpp"
#include "shardwise/layers/detail/channels.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/row_norm.hpp"
#include "shardwise/layers/sized.hpp"
#include "shardwise/layers/weight_and_bias.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

/// The weight of a new batch in running statistics.
struct Momentum {
  double value = 0.1;  ///< in [0, 1]
};

namespace detail {

template <Layout In>
inline constexpr bool has_own_channels =
    std::same_as<In, Sharded<Axis::channel>> || std::same_as<In, Sharded<Axis::feature>>;

/// Whether every rank has all values of each of its channels.
template <Layout In>
inline constexpr bool has_whole_channels =
    has_own_channels<In> || std::same_as<In, Invariant> || std::same_as<In, Replicated>;

/// Sums over each channel. They are exchanged in double; BatchNorm says why.
template <Layout In>
using ChannelSums = Exchange<std::conditional_t<has_whole_channels<In>, Redistribute<In, In>,
                                                Redistribute<Partial, Replicated>>,
                             Reduction::sum, double>;

template <Layout In>
using ChannelParameter = ParameterUse<
    std::conditional_t<has_own_channels<In>, In, Invariant>,
    std::conditional_t<has_own_channels<In> || std::same_as<In, Invariant>, In, Replicated>>;

/// The state of a batch normalisation: the running statistics of the rank's channels.
template <Layout Stored, class A>
struct BatchNormState {
  Buffer memory;  ///< of both
  View<A, Stored> running_mean;
  View<A, Stored> running_var;

  template <class F>
  void visit_buffers(F&& f) {
    f("running_mean", running_mean);
    f("running_var", running_var);
  }

  /// These, and mean and scale of the batch in `batch`, which has room for both.
  ChannelStatistics<A> with(const Buffer& batch) {
    A* const mean = static_cast<A*>(batch.data());
    return {running_mean.data(), running_var.data(), mean, mean + running_mean.size()};
  }
};

}  // namespace detail

/// y = (x - mean) / sqrt(variance + epsilon) w + b with the mean and variance of each channel: over
/// all other axes of [batch, channel, ...], or of [..., feature] without a channel axis. In
/// training, they are those of the batch over all ranks, with variance Σ (x - mean)² / N over the N
/// values of a channel. Each forward then updates the running statistics: running = (1 - momentum)
/// running + momentum new, with N - 1 in place of N in the new variance. Evaluation uses the
/// running statistics. w and the running variance begin as ones, b and the running mean as zeros.
/// `visit_buffers` of a model calls the running statistics "running_mean" and "running_var".
///
///     BatchNorm<64>{}                          weight and bias, epsilon 1e-5, momentum 0.1
///     BatchNorm<64, Affine::none>{Epsilon{1e-3}, Momentum{0.01}}
///     BatchNorm<dynamic>(64)
///
///                      w, b, running per rank   exchanges              gradient of w, b owes
/// Invariant            [C]                      nothing                nothing
/// Sharded<channel>, <feature>   [C/P]           nothing                nothing
/// any other split      [C]                      one all-reduce of 2 C  an all-reduce
///                                               doubles each way
/// layout   L -> L, for every L but Partial
/// sends    in training only: Σ x and Σ x² of each channel forward, and by the adjoint Σ dy and Σ
///          dy x̂ backward. All ranks know N from the shape of the whole batch. On a mesh both sums
///          are also added over the ranks that have other samples.
/// throws   shape_error if x has another number of channels, or both channels and features, or in
///          training only one value for each channel; argument_error for an epsilon below 0 or a
///          momentum outside [0, 1]
/// source   Ioffe and Szegedy 2015; torch.nn.BatchNorm2d
///
/// The variance is Σ x² / N - mean², from sums in double, so one exchange replaces two. For x of up
/// to 24 bits this loses less than the rounding of x did: if the mean is r standard deviations, x
/// has an error of r 2^-24 deviations, and the variance has one of r² 2^-53, which is less for
/// every r below 2^29. For x in double it loses digits: at r = 1e4, 8 are left. A variance below 0
/// by rounding counts as 0. A channel with variance 0 is divided by sqrt(epsilon), so with an
/// epsilon of 0 its y is not finite.
template <std::size_t N, Affine A = Affine::weight_and_bias>
class BatchNorm : public KeepsLayout, public Sized<N>, public WeightAndBias<detail::count_of(A)> {
  static_assert(N > 0, "BatchNorm<N> normalises at least one channel or feature.");

  using BatchNorm::WeightAndBias::has_bias;
  using BatchNorm::WeightAndBias::has_weight;

 public:
  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::input;
  static constexpr bool in_place = true;
  static constexpr bool exchanges_in_evaluation = false;
  ///@}

  using Sized<N>::Sized;
  using Sized<N>::in;

  /// If the number of channels is in the type.
  constexpr explicit BatchNorm(Epsilon epsilon, Momentum momentum = {}) requires(N != dynamic)
      : epsilon_(detail::checked(epsilon)), momentum_(checked(momentum)) {}

  /// If it is `dynamic`.
  constexpr BatchNorm(std::size_t channels, Epsilon epsilon,
                      Momentum momentum = {}) requires(N == dynamic)
      : Sized<N>(channels), epsilon_(detail::checked(epsilon)), momentum_(checked(momentum)) {}

  /// The same layer with its size in the object.
  constexpr auto as_dynamic() const {
    return BatchNorm<dynamic, A>(in(), Epsilon{epsilon_}, Momentum{momentum_});
  }

  ///@{
  /// As `Layer` says.
  template <Layout In>
  using parameters =
      typename BatchNorm::template uses<detail::ChannelParameter<In>, detail::ChannelParameter<In>>;

  template <Layout In>
  using exchanges = std::tuple<detail::ChannelSums<In>>;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() > 0) detail::require_channels(x, "normalises", in());
    return x;
  }

  constexpr auto parameter_specs(const Shape& x) const {
    const Shape channels{x[detail::channel_axis(output_shape(x))]};
    return BatchNorm::specs({"weight", channels, init::ones}, {"bias", channels});
  }

  /// Two numbers for each channel.
  constexpr std::array<Shape, 1> exchange_shapes(const Shape& x) const {
    return {Shape{{Axis::output, 2}, x[detail::channel_axis(x)]}};
  }

  template <class Frame>
  auto make_state(Frame& frame) const {
    using Number = accumulate_t<typename Frame::dtype>;
    using Stored = typename detail::ChannelParameter<typename Frame::layout>::stored;
    const Shape channels{frame.bound_input()[detail::channel_axis(frame.bound_input())]};
    const View<Number, Stored> shape(nullptr, channels, frame.place());
    const std::size_t n = shape.size();
    Buffer memory = frame.take(2 * n * sizeof(Number));
    Number* const mean = static_cast<Number*>(memory.data());
    Number* const variance = mean + n;
    detail::fill(frame.backend(), mean, n, Number(0));
    detail::fill(frame.backend(), variance, n, Number(1));
    return detail::BatchNormState<Stored, Number>{std::move(memory), shape.in_memory(mean),
                                                  shape.in_memory(variance)};
  }

  /// Mean and scale of each channel in the batch.
  template <class Frame>
  using saved = Buffer;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    const detail::ChannelsOf mine = here(x);
    Buffer memory = frame.take(2 * mine.channels * sizeof(accumulate_t<T>));
    const auto held = frame.state().with(memory);
    if (frame.training()) {
      find_statistics(frame, x, held);
    } else {
      frame.backend().for_each(mine.channels,
                               detail::RunningStatistics<accumulate_t<T>>{epsilon_, held});
    }
    const auto [weight, bias] = BatchNorm::values_of(frame);
    detail::for_each_in_channels(frame.backend(), mine,
                                 detail::BatchNormOutput<has_weight, has_bias, T>{
                                     held.mean, held.scale, weight, bias, x.data(), y.data()});
    if (frame.training()) frame.saved() = std::move(memory);
  }

  /// With x̂ = (x - mean) scale: dw = Σ dy x̂, db = Σ dy, and
  /// dx = w scale (dy - Σ dy / N - x̂ Σ dy x̂ / N), with sums over all ranks.
  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    const Buffer memory = std::exchange(frame.saved(), {});
    const auto held = frame.state().with(memory);
    const detail::ChannelsOf mine = here(x);
    auto sums = frame.template adjoint_input<0>();
    double* const levels = sums.writable().data();
    double* const alongs = levels + mine.channels;
    detail::put_channel_sums(frame.backend(), mine, detail::ChannelValue<T>{dy.data()},
                             detail::ChannelAlong<T>{held.mean, held.scale, x.data(), dy.data()},
                             levels);
    const auto [weight, bias] = BatchNorm::gradients_of(frame);
    if constexpr (has_weight) write_gradient(frame, mine, alongs, weight);
    if constexpr (has_bias) write_gradient(frame, mine, levels, bias);
    const auto all = frame.template exchange_adjoint<0>(std::move(sums));
    if constexpr (Frame::input_gradient) {
      const double* const of_all = all.view().data();
      detail::for_each_in_channels(
          frame.backend(), mine,
          detail::BatchNormInputGradient<has_weight, T>{
              held.mean, held.scale, of_all, of_all + mine.channels,
              values_of_channel(frame.held_part(x).whole), BatchNorm::values_of(frame)[0], x.data(),
              dy.data(), dx.data()});
    }
  }
  ///@}

 private:
  static constexpr double checked(Momentum momentum) {
    if (!(momentum.value >= 0 && momentum.value <= 1)) {
      throw argument_error(
          {"the momentum of running statistics is ", momentum.value, ": it must be from 0 to 1"});
    }
    return momentum.value;
  }

  template <class X>
  static detail::ChannelsOf here(const X& x) {
    return {x.local(), detail::channel_axis(x.local())};
  }

  static double values_of_channel(const Shape& x) {
    return static_cast<double>(detail::ChannelsOf(x, detail::channel_axis(x)).count());
  }

  template <class Frame, class T>
  static void write_gradient(Frame& frame, const detail::ChannelsOf& mine, const double* sums,
                             T* gradient) {
    frame.backend().for_each(mine.channels,
                             detail::ChannelGradient<T>{sums, frame.write(), gradient});
  }

  static void check_count(const Shape& x, double count) {
    if (count != 1) return;
    throw shape_error({"the input is a tensor ", x,
                       ", a single value for each channel, which has no variance to train with: "
                       "take a larger batch, or evaluate"});
  }

  /// Computes the batch's mean and scale of the rank's channels, and updates the running
  /// statistics.
  template <class Frame, class X, class Sum>
  void find_statistics(Frame& frame, const X& x, const detail::ChannelStatistics<Sum>& held) const {
    using T = typename Frame::dtype;
    const detail::ChannelsOf mine = here(x);
    const Shape whole = frame.held_part(x).whole;
    const double count = values_of_channel(whole);
    check_count(whole, count);
    auto sums = frame.template exchange_input<0>();
    detail::put_channel_sums(frame.backend(), mine, detail::ChannelValue<T>{x.data()},
                             detail::ChannelSquare<T>{x.data()}, sums.writable().data());
    const auto all = frame.template exchange<0>(std::move(sums));
    if (count == 0) return;
    const double* const of_all = all.view().data();
    frame.backend().for_each(
        mine.channels, detail::BatchStatistics<Sum>{of_all, of_all + mine.channels, count, epsilon_,
                                                    momentum_, frame.sees_new_batch(), held});
  }

  double epsilon_ = Epsilon{}.value;
  double momentum_ = Momentum{}.value;
};

/// "BatchNorm<64>".
template <std::size_t N, Affine A>
struct NameOf<BatchNorm<N, A>> {
  static std::string name() {
    return detail::norm_name("BatchNorm", N, A, Affine::weight_and_bias);
  }
};

}  // namespace shardwise

#pragma once
// Group and instance normalisation: of some channels of each image.

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "shardwise/backend/detail/rows.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/detail/group_norm_loops.hpp"
#include "shardwise/layers/detail/norm_exchanges.hpp"
#include "shardwise/layers/detail/planes.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/row_norm.hpp"
#include "shardwise/layers/sized.hpp"
#include "shardwise/layers/weight_and_bias.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

namespace detail {

/// A sum over the elements of each group; no communication if ranks have whole groups.
template <Layout In>
using GroupSum = Exchange<std::conditional_t<is_space_split<In>, Redistribute<Partial, Replicated>,
                                             Redistribute<In, In>>>;

/// In place of a number of groups: one for each channel.
inline constexpr std::size_t each_channel = 0;

template <std::size_t Groups, std::size_t Channels, Affine A>
consteval bool groups_must_divide() {
  static_assert(
      Channels == dynamic || (Channels > 0 && (Groups == each_channel || Channels % Groups == 0)),
      "The groups of a normalisation have equally many channels, at least one: Channels "
      "must be a multiple of Groups.");
  static_assert(A != Affine::weight,
                "A normalisation of groups has a weight and a bias, or neither: write "
                "Affine::weight_and_bias or Affine::none.");
  return true;
}

/// What GroupNorm and InstanceNorm compute. The channels of a group lie side by side, so a row, a
/// group of an image, is contiguous.
template <std::size_t Groups, std::size_t N, Affine A>
class NormOfGroups : public KeepsLayout, public NormSized<N>, public WeightAndBias<count_of(A)> {
  static_assert(groups_must_divide<Groups, N, A>());
  static constexpr bool has_affine = A != Affine::none;
  using Exchanges = NormExchanges<true>;

 public:
  static constexpr Saves saves = Saves::input;
  static constexpr bool in_place = true;

  using NormSized<N>::NormSized;
  using NormSized<N>::in;

  /// The same layer with its size in the object.
  constexpr auto as_dynamic() const {
    return NormOfGroups<Groups, dynamic, A>(in(), Epsilon{epsilon_});
  }

  template <Layout In>
  using parameters =
      typename NormOfGroups::template uses<ChannelParameter<In>, ChannelParameter<In>>;

  template <Layout In>
  using exchanges = typename Exchanges::template list<GroupSum<In>>;

  constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() == 0) return x;
    const bool divides = in() > 0 && in() % groups() == 0;
    if (!is_images(x) || !divides || (x[1].known() && x[1].extent() != in())) {
      throw shape_error({"the input is a tensor ", x, ", but the layer normalises ", groups(),
                         " groups of images [batch, channel, (depth,) (height,) width] with ", in(),
                         " channels, equally many for each group"});
    }
    return x;
  }

  constexpr auto parameter_specs(const Shape& x) const {
    const Shape channels{output_shape(x)[1]};
    return NormOfGroups::specs({"weight", channels, init::ones}, {"bias", channels});
  }

  /// A number for each group of each image.
  constexpr auto exchange_shapes(const Shape& x) const {
    const bool has_whole_groups = x[1].known() && x[1].grain % of_group() == 0;
    const Dim all = has_whole_groups ? Dim{Axis::channel, x[1].units, x[1].grain / of_group()}
                                     : Dim{Axis::channel, groups()};
    return Exchanges::shapes({x[0], all});
  }

  /// No state, but a check when the layer is bound.
  template <class Frame>
  Nothing make_state(Frame& frame) const {
    if constexpr (std::same_as<typename Frame::layout, Sharded<Axis::channel>>)
      require_whole_groups(frame.bound_input());
    return {};
  }

  template <class Frame>
  using saved = typename Exchanges::template sums_of<Frame>;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    using T = typename Frame::dtype;
    if (frame.training()) require_variance(frame, x);
    const GroupedPlanes planes = planes_of(x);
    auto sums = Exchanges::sums(frame, rows_of(x), count_of_row(frame, x), epsilon_, x.data());
    const auto [weight, bias] = NormOfGroups::values_of(frame);
    for_each_in_rows(frame.backend(), count(x), planes.size,
                     GroupNormOutput<has_affine, Rows<Frame>, T>{planes, statistics(frame, sums, x),
                                                                 weight, bias, x.data(), y.data()});
    if (frame.training()) frame.saved() = std::move(sums);
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    using Sum = accumulate_t<T>;
    const auto sums = std::exchange(frame.saved(), {});
    const Rows<Frame> rows = statistics(frame, sums, x);
    const GroupedPlanes planes = planes_of(x);
    const auto [weight, bias] = NormOfGroups::values_of(frame);

    const Buffer memory = frame.take(2 * count(x) * sizeof(Sum));
    Sum* const alongs = static_cast<Sum*>(memory.data());  // Σ dy x̂ of each plane
    Sum* const levels = alongs + count(x);                 // Σ dy
    put_plane_sums(frame, x, PlaneAlong<Rows<Frame>, T>{planes, rows, x.data(), dy.data()}, alongs);
    put_plane_sums(frame, x, PlaneTerms<T>{planes.size, dy.data()}, levels);
    if constexpr (has_affine) {
      const auto [weight_gradient, bias_gradient] = NormOfGroups::gradients_of(frame);
      put_gradient(frame, x, alongs, weight_gradient);
      put_gradient(frame, x, levels, bias_gradient);
    }
    const RowExtents groups_here{rows_of(x).rows, planes.of_group};
    const auto along = adjoint_row_sum<Exchanges::of_squares>(
        frame, groups_here, WeightedPlanes<has_affine, T>{planes, weight, alongs});
    const auto level = adjoint_row_sum<Exchanges::of_totals>(
        frame, groups_here, WeightedPlanes<has_affine, T>{planes, weight, levels});
    if constexpr (Frame::input_gradient) {
      for_each_in_rows(
          frame.backend(), count(x), planes.size,
          GroupNormInputGradient<has_affine, Rows<Frame>, T>{
              planes, rows, static_cast<Sum>(count_of_row(frame, x)), along.view().data(),
              level.view().data(), weight, x.data(), dy.data(), dx.data()});
    }
  }

 private:
  template <class Frame>
  using Rows = NormStatistics<true, accumulate_t<typename Frame::dtype>>;

  constexpr std::size_t groups() const { return Groups == each_channel ? in() : Groups; }
  constexpr std::size_t of_group() const { return in() / groups(); }

  void require_whole_groups(const Shape& x) const {
    if (x[1].grain % of_group() == 0) return;
    const std::string channels = std::to_string(of_group());
    throw shape_error({"the input is a tensor ", x, ", split by channel in units of ", x[1].grain,
                       ", but a group has ", channels,
                       " channels, so that a shard could end within a group: let the "
                       "layer in front keep whole groups together (.grain = ",
                       channels, "), or write To<Invariant> in front of this one"});
  }

  template <class X>
  GroupedPlanes planes_of(const X& x) const {
    return {plane_of(x.local()), of_group(), x.local()[1].extent()};
  }
  /// The rank's planes.
  template <class X>
  static std::size_t count(const X& x) {
    return x.local().elements(0, 2);
  }
  template <class X>
  RowExtents rows_of(const X& x) const {
    return {count(x) / of_group(), of_group() * plane_of(x.local())};
  }
  /// Elements of a row over all ranks.
  template <class Frame, class X>
  std::size_t count_of_row(const Frame& frame, const X& x) const {
    return of_group() * plane_of(frame.held_part(x).whole);
  }

  template <class Frame, class X>
  void require_variance(const Frame& frame, const X& x) const {
    if (count_of_row(frame, x) != 1) return;
    throw shape_error({"the input is a tensor ", x.global(),
                       ", a single value for each group, which has no variance to train with: take "
                       "larger images or groups, or evaluate"});
  }

  template <class Frame, class PerRow, class X>
  Rows<Frame> statistics(const Frame& frame, const NormSums<PerRow>& sums, const X& x) const {
    return {sums, count_of_row(frame, x), epsilon_};
  }

  template <class Frame, class X, class Terms, class Sum>
  static void put_plane_sums(Frame& frame, const X& x, const Terms& terms, Sum* sums) {
    reduce_each(frame.backend(), count(x), plane_of(x.local()), Sum(0), terms, Plus{},
                PutInto<Sum>{sums});
  }

  /// gradient[c] (+)= the sums of the planes of channel c.
  template <class Frame, class X, class Sum, class T>
  static void put_gradient(Frame& frame, const X& x, const Sum* sums, T* gradient) {
    const std::size_t images = x.local()[0].extent(), channels = x.local()[1].extent();
    put_column_sums(frame.backend(), SummedRows<Sum>{images, channels, channels, sums},
                    frame.write(), gradient);
  }

  using NormSized<N>::epsilon_;
};

}  // namespace detail

/// y = (x - mean) / sqrt(variance + epsilon) w + b on images [batch, channel, ...], with the mean
/// and variance of each of `Groups` groups of neighbouring channels of each image; w and b are
/// numbers of each channel. variance is Σ (x - mean)² / N. w begins as ones, b as zeros.
///
///     GroupNorm<8, 64>{}                       8 groups of 64 channels, epsilon 1e-5
///     GroupNorm<8, 64, Affine::none>{Epsilon{1e-6}}
///     GroupNorm<8, dynamic>(64)
///
///                              w, b per rank   exchanges                   gradient owes
/// Invariant                    [C]             nothing                     nothing
/// Sharded<channel>             [C/P]           nothing                     nothing
/// Sharded<batch>               [C]             nothing                     an all-reduce
/// Sharded<height> and the like [C]             two all-reduces of a        an all-reduce
///                                              number for each group of
///                                              each image, each way
/// layout   L -> L, for every L but Partial. Split by channel, ranks have whole groups: the grain
///          of x's channels is a multiple of the channels of a group.
/// throws   shape_error if x is not such images, if its shards could cut a group, or in training if
///          a group has only one value; argument_error for an epsilon below 0
/// source   Wu, He, "Group normalization", 2018; torch.nn.GroupNorm
template <std::size_t Groups, std::size_t N, Affine A = Affine::weight_and_bias>
struct GroupNorm : detail::NormOfGroups<Groups, N, A> {
  static_assert(Groups > 0 && Groups != dynamic,
                "GroupNorm<Groups, N> has at least one group, and their number is in the type.");
  using detail::NormOfGroups<Groups, N, A>::NormOfGroups;
};

/// GroupNorm with a group for each channel, by default without a weight and a bias, and without
/// running statistics, as torch.nn.InstanceNorm2d has it. Split by channel it sends nothing.
/// source   Ulyanov, Vedaldi, Lempitsky, "Instance normalization", 2016
template <std::size_t N, Affine A = Affine::none>
struct InstanceNorm : detail::NormOfGroups<detail::each_channel, N, A> {
  using detail::NormOfGroups<detail::each_channel, N, A>::NormOfGroups;
};

namespace detail {

template <std::size_t Groups, std::size_t N, Affine A>
inline constexpr bool runs_as_dynamic<GroupNorm<Groups, N, A>> = true;
template <std::size_t N, Affine A>
inline constexpr bool runs_as_dynamic<InstanceNorm<N, A>> = true;

}  // namespace detail

/// "GroupNorm<8, 64>".
template <std::size_t Groups, std::size_t N, Affine A>
struct NameOf<GroupNorm<Groups, N, A>> {
  static std::string name() {
    const std::string kind = "GroupNorm<" + std::to_string(Groups) + ", " + detail::size_name(N);
    return kind + (A == Affine::none ? ", no weight>" : ">");
  }
};

/// "InstanceNorm<64>".
template <std::size_t N, Affine A>
struct NameOf<InstanceNorm<N, A>> {
  static std::string name() {
    const std::string kind = "InstanceNorm<" + detail::size_name(N);
    return kind + (A == Affine::none ? ">" : ", weight and bias>");
  }
};

}  // namespace shardwise

#pragma once
// Layers that do what they are told to do wrong, for check_layer to find.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/core/error.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layout/tensor.hpp"

namespace wrong_layers {

using namespace shardwise;

using Batch = Sharded<Axis::batch>;
using Feature = Sharded<Axis::feature>;

/// What a layer does wrong. The first ones are alike on all ranks, so that one rank does them, too.
enum class Wrong {
  nothing,
  dx_lacks_factor,
  dx_has_factor_twice,
  dx_is_zero,
  dx_lacks_buffer,
  dx_adds,
  dx_leaves_out_last,
  y_leaves_out_last,
  keeps_what_it_hides,
  gradient_lacks_buffer,
  gradient_is_zero,
  gradient_replaces,
  gradient_adds_always,
  gradient_subtracts_later,
  gradient_doubles_later,
  evaluates_of_rank,
  y_of_rank,
  next_step_of_rank,
  buffer_of_own_rows,
  throws_on_one_rank,
};

/// y = factor x level, with a factor for each feature, and one level that is no parameter and
/// changes in each forward in training.
struct Scaled : KeepsLayout {
  static constexpr Saves saves = Saves::input;

  Wrong wrong = Wrong::nothing;
  init::Rule begins = init::ones;  ///< the factors

  explicit Scaled(Wrong does_wrong = Wrong::nothing, init::Rule rule = init::ones)
      : wrong(does_wrong), begins(rule) {}

  template <Layout In>
  using parameters = std::tuple<
      ParameterUse<std::conditional_t<std::same_as<In, Feature>, Feature, Invariant>,
                   std::conditional_t<std::same_as<In, Feature> || std::same_as<In, Invariant>, In,
                                      Replicated>>>;
  std::array<ParameterSpec, 1> parameter_specs(const Shape& in) const {
    return {ParameterSpec{"factor", Shape{in.back()}, begins}};
  }

  struct Kept {
    Tensor<double, Invariant> level;
    double hidden = 0;

    template <class F>
    void visit_buffers(F&& f) {
      f("level", level.view());
    }
  };
  template <class Frame>
  Kept make_state(Frame& frame) const {
    Kept kept{Tensor<double, Invariant>(Shape{{Axis::output, 1}}, frame.place()), 0};
    kept.level[0] = 1;
    return kept;
  }
  /// The level that this forward had.
  template <class Frame>
  using saved = double;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    if (wrong == Wrong::throws_on_one_rank && frame.place() == Place{1, 3})
      throw argument_error("this rank will not");
    const auto [factor] = frame.parameters();
    double& level = frame.state().level[0];
    double now = level + of_rank(frame);
    if (wrong == Wrong::keeps_what_it_hides) now += ++frame.state().hidden;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (wrong != Wrong::y_leaves_out_last || i + 1 < x.size())
        y[i] = x[i] * factor[i % x.columns()] * now;
    if (!frame.training()) return;
    frame.saved() = level;
    level = 0.75 * level + 0.5;
    for (std::size_t i = 0; wrong == Wrong::buffer_of_own_rows && i < x.size(); ++i) level += x[i];
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, X x, DY dy, DX dx) const {
    const double level = frame.saved();
    find_gradients(frame, x, dy, wrong == Wrong::gradient_lacks_buffer ? 1 : level);
    if constexpr (Frame::input_gradient) {
      const auto [factor] = frame.parameters();
      for (std::size_t i = 0; i < dx.size(); ++i) {
        const double f = factor[i % dy.columns()];
        const double right = dy[i] * f * level;
        if (wrong == Wrong::dx_adds) {
          dx[i] += right;
        } else if (wrong != Wrong::dx_leaves_out_last || i + 1 < dx.size()) {
          dx[i] = wrong == Wrong::dx_lacks_factor       ? dy[i] * level
                  : wrong == Wrong::dx_has_factor_twice ? right * f
                  : wrong == Wrong::dx_is_zero          ? 0
                  : wrong == Wrong::dx_lacks_buffer     ? dy[i] * f
                                                        : right;
        }
      }
    }
  }

 private:
  template <class Frame>
  double of_rank(Frame& frame) const {
    const bool does = wrong == Wrong::y_of_rank ||
                      (wrong == Wrong::evaluates_of_rank && !frame.training()) ||
                      (wrong == Wrong::next_step_of_rank &&
                       frame.weight(static_cast<const double*>(nullptr)).version > 1);
    return does ? frame.place().rank * 0x1p-49 : 0;
  }

  template <class Frame, class X, class DY>
  void find_gradients(Frame& frame, X x, DY dy, double level) const {
    const auto [gradient] = frame.gradients();
    const bool adds = wrong == Wrong::gradient_adds_always ||
                      (frame.write() == Write::add && wrong != Wrong::gradient_replaces);
    double sign = wrong == Wrong::gradient_is_zero ? 0 : level;
    if (adds && wrong == Wrong::gradient_subtracts_later) sign = -level;
    if (adds && wrong == Wrong::gradient_doubles_later) sign = 2 * level;
    for (std::size_t c = 0; c < dy.columns(); ++c) {
      if (!adds) gradient[c] = 0;
      for (std::size_t i = c; i < dy.size(); i += dy.columns()) gradient[c] += sign * dy[i] * x[i];
    }
  }
};

/// Its backward gets y, and takes it for x.
struct SavesOutput : Scaled {
  static constexpr Saves saves = Saves::output;
  using Scaled::Scaled;
};

/// It says that the gradients of a rank's own rows are whole.
struct GradientsOfOwnRows : Scaled {
  template <Layout>
  using parameters = std::tuple<ParameterUse<Invariant, Invariant>>;
  using Scaled::Scaled;
};

/// A column-parallel layer that says that its input is Invariant: its gradient would then be whole,
/// but each rank's is a summand.
struct WrongDual : ColumnParallelLinear<7, 5> {
  template <Layout Wanted>
  using desired_input_layout = Invariant;
  template <Layout Offered, Layout Wanted>
  using input_layout = Invariant;
};

/// y = Σ x over features, + b on every rank. It uses b as Replicated; Partial would be true if only
/// the first rank added it.
struct BiasOnEveryRank : TakesAndGives<Feature, Partial> {
  static constexpr Saves saves = Saves::input;

  template <Layout In>
  using parameters = std::tuple<ParameterUse<Invariant, Replicated>>;

  Shape output_shape(const Shape& in) const { return in.with_back({Axis::feature, 1}); }
  std::array<ParameterSpec, 1> parameter_specs(const Shape&) const {
    return {ParameterSpec{"bias", Shape{{Axis::output, 1}}}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    for (std::size_t r = 0; r < x.rows(); ++r) {
      y[r] = std::get<0>(frame.parameters())[0];
      for (std::size_t c = 0; c < x.columns(); ++c) y[r] += x[r * x.columns() + c];
    }
  }
  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, X x, DY dy, DX dx) const {
    double& gradient = std::get<0>(frame.gradients())[0];
    if (frame.write() == Write::replace) gradient = 0;
    for (std::size_t r = 0; r < x.rows(); ++r) {
      gradient += dy[r];
      std::fill_n(dx.data() + r * x.columns(), x.columns(), dy[r]);
    }
  }
};

/// y = x + a - b + c over the rank's part, where all three parameters have these names.
struct Shifted : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;

  std::array<std::string_view, 3> names{"a", "b", "c"};

  Shifted() = default;
  explicit Shifted(std::array<std::string_view, 3> given) : names(given) {}

  template <Layout In>
  using use = ParameterUse<Invariant,
                           std::conditional_t<std::same_as<In, Invariant>, Invariant, Replicated>>;
  template <Layout In>
  using parameters = std::tuple<use<In>, use<In>, use<In>>;
  std::array<ParameterSpec, 3> parameter_specs(const Shape&) const {
    const Shape one{{Axis::output, 1}};
    return {ParameterSpec{names[0], one}, ParameterSpec{names[1], one},
            ParameterSpec{names[2], one}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    const auto [a, b, c] = frame.parameters();
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] + a[0] - b[0] + c[0];
  }
  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, DY dy, DX dx) const {
    const auto [a, b, c] = frame.gradients();
    if (frame.write() == Write::replace) a[0] = b[0] = c[0] = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) {
      a[0] += dy[i];
      b[0] -= dy[i];
      c[0] += dy[i];
    }
    if constexpr (Frame::input_gradient) std::copy_n(dy.data(), dy.size(), dx.data());
  }
};

/// y = x - Σ x over the features that are here, by as many exchanges of the sums as it is told.
struct Centre : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;

  int forward_exchanges = 1;
  bool is_mean = false;  ///< Σ x / 7, which is no integer

  explicit Centre(int forward_times = 1, bool mean = false)
      : forward_exchanges(forward_times), is_mean(mean) {}

  template <Layout In>
  using exchanges = std::tuple<Exchange<std::conditional_t<
      std::same_as<In, Feature>, Redistribute<Partial, Replicated>, Redistribute<In, In>>>>;
  std::array<Shape, 1> exchange_shapes(const Shape& in) const { return {in.without_back()}; }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    for (int i = 1; i < forward_exchanges; ++i)
      frame.template exchange<0>(sums(x, frame.template exchange_input<0>()));
    auto mine = sums(x, frame.template exchange_input<0>());
    if (forward_exchanges == 0) {
      subtract(x, mine.view(), y);
    } else {
      subtract(x, frame.template exchange<0>(std::move(mine)).view(), y);
    }
  }
  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, DY dy, DX dx) const {
    subtract(dy,
             frame.template exchange_adjoint<0>(sums(dy, frame.template adjoint_input<0>())).view(),
             dx);
  }

 private:
  template <class X, class Sums>
  Sums sums(X x, Sums sums) const {
    auto to = sums.writable();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = 0;
    for (std::size_t i = 0; i < x.size(); ++i) to[i / x.columns()] += is_mean ? x[i] / 7 : x[i];
    return sums;
  }
  template <class X, class Sums, class Y>
  static void subtract(X x, Sums sums, Y y) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] - sums[i / x.columns()];
  }
};

/// y = x / t², which a checker that begins at t = 1 alone would know only there, and which has no
/// value at t = 0.
struct DividedBySquare : KeepsLayout {
  static constexpr Saves saves = Saves::output;

  template <Layout In>
  using parameters = std::tuple<ParameterUse<
      Invariant, std::conditional_t<std::same_as<In, Invariant>, Invariant, Replicated>>>;
  std::array<ParameterSpec, 1> parameter_specs(const Shape&) const {
    return {ParameterSpec{"temperature", Shape{{Axis::output, 1}}, init::ones}};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    const double t = std::get<0>(frame.parameters())[0];
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] / (t * t);
  }
  template <class Frame, class Y, class DY, class DX>
  void backward(Frame& frame, Y y, DY dy, DX dx) const {
    const double t = std::get<0>(frame.parameters())[0];
    double& gradient = std::get<0>(frame.gradients())[0];
    if (frame.write() == Write::replace) gradient = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) {
      gradient -= 2 * y[i] * dy[i] / t;
      if constexpr (Frame::input_gradient) dx[i] = dy[i] / (t * t);
    }
  }
};

/// Divides by the samples of the batch; if it is wrong, by those that the rank has of it.
struct DividesBySamples : KeepsLayout {
  bool is_wrong = false;

  static constexpr Saves saves = Saves::nothing;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    const detail::HeldPart held = frame.held_part(x);
    const std::size_t samples = (is_wrong ? held.local : held.whole)[0].extent();
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] / static_cast<double>(samples);
  }
  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, DY dy, DX dx) const {
    forward(frame, dy, dx);
  }
};

/// Counts the samples of the batch in a buffer, with a rounding that depends on the slice.
struct CountsByRank : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;

  struct Kept {
    Tensor<double, Invariant> count;

    template <class F>
    void visit_buffers(F&& f) {
      f("count", count.view());
    }
  };
  template <class Frame>
  Kept make_state(Frame& frame) const {
    return {Tensor<double, Invariant>(Shape{{Axis::output, 1}}, frame.place())};
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    const detail::HeldPart held = frame.held_part(x);
    if (frame.training())
      frame.state().count[0] += static_cast<double>(held.whole[0].extent()) +
                                0x1p-49 * static_cast<double>(held.begin[0]);
    std::copy_n(x.data(), x.size(), y.data());
  }
  template <class Frame, class DY, class DX>
  void backward(Frame&, Nothing, DY dy, DX dx) const {
    std::copy_n(dy.data(), dy.size(), dx.data());
  }
};

}  // namespace wrong_layers

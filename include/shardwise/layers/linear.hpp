#pragma once
// The linear layer: one template over the split of its weight.

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/sized.hpp"
#include "shardwise/layers/split.hpp"
#include "shardwise/layers/weight_and_bias.hpp"

namespace shardwise {

namespace detail {

[[noreturn]] void throw_wrong_features(const Shape& x, std::size_t in, std::size_t out);

std::string linear_name(const char* kind, std::size_t in, std::size_t out, bool bias);

}  // namespace detail

/// y = x Wᵀ + b on the innermost axis, which must be `feature`.
///
///                split::output             split::input              split::none
/// x per rank     [..., In]                 [..., In/P]               [..., In]
/// W per rank     [Out/P, In]               [Out, In/P]               [Out, In]
/// b per rank     [Out/P]                   [Out], added on rank 0    [Out]
/// y per rank     [..., Out/P]              [..., Out], a summand     [..., Out]
/// layout         Replicated ->             Sharded<feature> ->       L -> L for Invariant,
///                Sharded<feature>          Partial                   Sharded<batch>, <sequence>
/// gradient owes  nothing                   nothing                   all-reduce unless Invariant
///
/// In and Out are features, as `Sized` says. Shards follow the units and grain of the input's
/// features; `block_of` cuts Out, or the units of `in_units_of`.
/// sends    nothing
/// throws   shape_error if x has another innermost axis or extent than In features
/// source   Shoeybi et al. 2019, section 3
template <class S, std::size_t In, std::size_t Out, bool Bias = true>
class Linear : public detail::ProductLayouts<S, Axis::feature>,
               public Sized<In, Out>,
               public WeightedProduct<Linear<S, In, Out, Bias>,
                                      detail::ProductLayouts<S, Axis::feature>, Bias> {
 public:
  using Sized<In, Out>::Sized;
  using Sized<In, Out>::in;
  using Sized<In, Out>::out;

  ///@{
  /// As `SplitChoices` says.
  using splits = SplitChoices<split::none, split::output, split::input>;
  template <class Other>
  using split_by = Linear<Other, In, Out, Bias>;
  ///@}

  /// The same layer with its sizes in the object.
  constexpr auto as_dynamic() const {
    Linear<S, dynamic, dynamic, Bias> other(in(), out());
    other.weight_rule_ = this->weight_rule_;
    other.bias_rule_ = this->bias_rule_;
    other.unit_ = unit_;
    other.readers_ = readers_;
    return other;
  }

  /// The same layer, whose outputs are units of `size` neighbouring features, such as the heads of
  /// an attention: a rank holds whole units. `readers` is the number of query heads that read each
  /// of these key heads, for an `Attend` whose readers are `dynamic`; it stands in the `Dim` of y.
  /// throws   argument_error if `size` does not divide Out, or there are no readers
  constexpr Linear in_units_of(std::size_t size, std::size_t readers = 1) const {
    if (size == 0 || out() % size != 0) {
      throw argument_error({"in_units_of: ", out(),
                            " output features are no whole number of units "
                            "of ",
                            size, "; give a size that divides them"});
    }
    if (readers == 0)
      throw argument_error("in_units_of: each unit needs at least one reader, but 0 are given");
    Linear other = *this;
    other.unit_ = size;
    other.readers_ = readers;
    return other;
  }

  ///@{
  /// As `Layer` says.
  static constexpr Saves saves = Saves::input;
  static constexpr bool backward_in_parts = true;

  [[gnu::noinline]] constexpr Shape output_shape(const Shape& x) const {
    if (x.rank() > 0) check_input(x);
    return x.with_back({Axis::feature, out() / unit_, unit_, readers_});
  }

  constexpr auto parameter_specs(const Shape& x) const {
    const Dim inputs = x.rank() > 0 ? x.back() : Dim{Axis::feature, in()};
    const Fans fans{in(), out()};
    const Dim rows{Axis::output, out() / unit_, unit_};
    return Linear::specs(
        {"weight", {rows, {Axis::input, inputs.units, inputs.grain}}, this->weight_rule_, fans},
        {"bias", {rows}, this->bias_rule_, fans});
  }

  /// The products with the rank's part of the weight.
  template <class Frame>
  static auto make_state(Frame& frame) {
    using T = typename Frame::dtype;
    using B = typename Frame::backend_type;
    static_assert(
        Backend<B, T>,
        "the backend does not compute in this dtype: docs/backends.md says which one runs "
        "where. Name another dtype or another backend in the model's Context.");
    const Shape weight = frame.template parameter_shape<0>();
    return typename B::template Linear<T>(frame.backend(), weight[1].extent(), weight[0].extent());
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    frame.state().forward(x.rows(), x.data(), Linear::weight_of(frame), Linear::values_of(frame)[1],
                          this->activation_, y.data());
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    backward_parameters(frame, x, dy);
    if constexpr (Frame::input_gradient) backward_input(frame, dy, dx);
  }

  template <class Frame, class DY, class DX>
  void backward_input(Frame& frame, const DY& dy, const DX& dx) const {
    frame.state().backward_input(dy.rows(), dy.data(), Linear::weight_of(frame), dx.data());
  }

  template <class Frame, class X, class DY>
  void backward_parameters(Frame& frame, const X& x, const DY& dy) const {
    const auto [dw, db] = Linear::gradients_of(frame);
    frame.state().backward_weight(x.rows(), x.data(), dy.data(), frame.write(), dw, db);
  }
  ///@}

 private:
  template <class, std::size_t, std::size_t, bool>
  friend class Linear;

  constexpr void check_input(const Shape& x) const {
    const Dim& last = x.back();
    if (last.axis != Axis::feature || (last.known() && last.extent() != in())) {
      detail::throw_wrong_features(x, in(), out());
    }
  }

  std::size_t unit_ = 1;     // features that a split keeps together
  std::size_t readers_ = 1;  // of each unit
};

/// Each rank has all inputs and computes its block of the outputs.
template <std::size_t In, std::size_t Out, bool Bias = true>
using ColumnParallelLinear = Linear<split::output, In, Out, Bias>;

/// Each rank has its block of the inputs and computes a summand of all outputs.
template <std::size_t In, std::size_t Out, bool Bias = true>
using RowParallelLinear = Linear<split::input, In, Out, Bias>;

/// "RowParallelLinear<512, 10>".
template <class S, std::size_t In, std::size_t Out, bool Bias>
struct NameOf<Linear<S, In, Out, Bias>> {
  static std::string name() {
    constexpr const char* kind = std::same_as<S, split::output>  ? "ColumnParallelLinear"
                                 : std::same_as<S, split::input> ? "RowParallelLinear"
                                                                 : "Linear";
    return detail::linear_name(kind, In, Out, Bias);
  }
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void throw_wrong_features(const Shape& x, std::size_t in, std::size_t out) {
  throw shape_error({"the input is a tensor ", x, ", but the weight has ", in, " input features (",
                     out, " output): the innermost axis must be feature with that extent"});
}

SHARDWISE_INLINE std::string linear_name(const char* kind, std::size_t in, std::size_t out,
                                         bool bias) {
  return sentence({kind, "<", size_name(in), ", ", size_name(out), bias ? ">" : ", no bias>"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

#pragma once
// The splits of a convolution, and the layouts that follow from them.

#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>

#include "shardwise/layers/convolution_form.hpp"
#include "shardwise/layers/detail/convolution_checks.hpp"
#include "shardwise/layers/detail/image_windows.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/sized.hpp"
#include "shardwise/layers/split.hpp"
#include "shardwise/layout/layout.hpp"

namespace shardwise {

namespace detail {

/// A split of the images along an axis of space.
template <Axis A>
struct ImageSplit {
  static constexpr Axis axis = A;  ///< the split axis
  static constexpr SplitKind kind = A == Axis::depth    ? SplitKind::depth
                                    : A == Axis::height ? SplitKind::height
                                                        : SplitKind::width;  ///< as a value
};

}  // namespace detail

namespace split {

/// By whole groups of a grouped convolution.
struct group {
  static constexpr SplitKind kind = SplitKind::group;  ///< as a value
};

///@{
/// By blocks of one axis of space. All ranks have the whole weight. A rank also has the elements
/// that its windows read beyond its block.
using depth = detail::ImageSplit<Axis::depth>;
using height = detail::ImageSplit<Axis::height>;
using width = detail::ImageSplit<Axis::width>;
///@}

}  // namespace split

namespace detail {
template <class S>
inline constexpr bool splits_space = false;
template <Axis A>
inline constexpr bool splits_space<ImageSplit<A>> = true;

/// A split of images along an axis of space: `split::height` and the like.
template <class S>
concept SpaceSplit = detail::splits_space<S>;

/// The splits of a convolution.
template <class S>
concept ConvolutionSplit = Split<S> || std::same_as<S, split::group> || SpaceSplit<S>;

/// The layouts of a convolution or a transposed one, by split. The weight's outermost axis is that
/// of the output's channels, or of the input's of a transposed one.
template <class S, auto Form>
struct ConvolutionLayouts : ProductLayouts<S, Axis::channel> {};

/// Outputs of a group need only the inputs of that group, which are on the same rank.
template <auto Form>
struct ConvolutionLayouts<split::group, Form>
    : TakesAndGives<Sharded<Axis::channel>, Sharded<Axis::channel>> {
  template <Layout In>
  using bias = ParameterUse<Sharded<Axis::output>, Sharded<Axis::output>>;
  template <Layout In>
  using weight =
      std::conditional_t<Form.windows[0].is_transposed,
                         ParameterUse<Sharded<Axis::input>, Sharded<Axis::input>>, bias<In>>;
};

/// A rank computes its block of the outputs along A, and has all inputs that they read.
template <Axis A, auto Form>
struct ConvolutionLayouts<ImageSplit<A>, Form> {
  static_assert(axis_must_exist<A, Form.windows.size()>());

  template <Layout Wanted>
  using desired_input_layout = Sharded<A>;
  template <Layout Offered, Layout Wanted>
  using input_layout = typename read_through<A, window_along<A>(Form.windows)>::type;
  template <Layout In>
  using output_layout = Sharded<A>;
  template <Layout In>
  using weight = ParameterUse<Invariant, Replicated>;
  template <Layout In>
  using bias = weight<In>;
};

template <class S, auto Form, class Spaces>
struct ConvolutionSplits;
template <class S, auto Form, std::size_t... Is>
struct ConvolutionSplits<S, Form, std::index_sequence<Is...>> {
  using type = SplitChoices<split::none, split::output, split::input,
                            ImageSplit<space_axis(Is, sizeof...(Is))>...>;
};
template <class S, auto Form, std::size_t... Is>
requires(Form.groups > 1) struct ConvolutionSplits<S, Form, std::index_sequence<Is...>> {
  using type = SplitChoices<split::none, ImageSplit<space_axis(Is, sizeof...(Is))>...>;
};
/// By groups, the units of the output depend on those of the input, so the layers around are made
/// for this split.
template <auto Form, std::size_t... Is>
requires(Form.groups > 1) struct ConvolutionSplits<split::group, Form, std::index_sequence<Is...>> {
  using type = SplitChoices<split::group>;
};

/// The splits that a convolution with this one can have instead.
template <class S, auto Form>
using convolution_splits_t =
    typename ConvolutionSplits<S, Form, std::make_index_sequence<Form.windows.size()>>::type;

/// As in the name of a layer.
template <ConvolutionSplit S>
std::string split_name() {
  if constexpr (SpaceSplit<S>) {
    return std::string(name(S::axis));
  } else {
    return std::same_as<S, split::output>  ? "output"
           : std::same_as<S, split::input> ? "input"
           : std::same_as<S, split::group> ? "group"
                                           : "none";
  }
}

/// "Conv2d<output, 3, 32, 3x3, padding 1x1>", of the kind "Conv".
template <ConvolutionSplit S, std::size_t In, std::size_t Out, auto Form>
std::string convolution_name(const char* kind) {
  return kind + std::to_string(Form.windows.size()) + "d<" + split_name<S>() + ", " +
         size_name(In) + ", " + size_name(Out) + ", " + form_name(Form) + '>';
}

}  // namespace detail

}  // namespace shardwise

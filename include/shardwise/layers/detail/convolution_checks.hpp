#pragma once
// Errors of a convolution's channels and input: at compile time for what the types have, the rest
// at run time with the shapes.

#include <array>
#include <cstddef>
#include <string>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/split.hpp"
#include "shardwise/layout/window.hpp"

namespace shardwise::detail {

template <std::size_t InputChannels, std::size_t OutputChannels, std::size_t Groups,
          std::size_t Grain>
consteval bool channels_must_divide() {
  static_assert(InputChannels > 0 && OutputChannels > 0,
                "A convolution has at least one input channel and one output channel.");
  static_assert(InputChannels == dynamic || InputChannels % Groups == 0,
                "The groups of a convolution have equally many channels: InputChannels must be a "
                "multiple of Groups.");
  static_assert(OutputChannels == dynamic || OutputChannels % Groups == 0,
                "The groups of a convolution have equally many channels: OutputChannels must be a "
                "multiple of Groups.");
  static_assert(OutputChannels == dynamic || OutputChannels % Grain == 0,
                "Shards keep Grain output channels together: OutputChannels must be a multiple of "
                "Grain.");
  return true;
}

template <class Split, bool SplitsGroups, std::size_t Groups, std::size_t Grain>
consteval bool groups_must_stay_whole() {
  static_assert(Groups == 1 || SplitsGroups ||
                    !(std::same_as<Split, split::output> || std::same_as<Split, split::input>),
                "A grouped convolution that is split by output or by input channel would cut "
                "within groups: write split::group, which gives each rank whole groups, their "
                "inputs and their outputs, or split::none.");
  static_assert(!SplitsGroups || Grain == 1,
                "The output channels of a convolution that is split by group lie as its input's "
                "do: leave .grain away.");
  return true;
}

/// The name of axis `i` of `axes` axes of space.
constexpr Axis space_axis(std::size_t i, std::size_t axes) {
  constexpr std::array names{Axis::depth, Axis::height, Axis::width};
  return names[names.size() - axes + i];
}

/// The position of axis `a` among `axes` axes of space; `axes` if it is not one of them.
constexpr std::size_t space_position(Axis a, std::size_t axes) {
  for (std::size_t i = 0; i < axes; ++i) {
    if (space_axis(i, axes) == a) return i;
  }
  return axes;
}

template <Axis SplitAxis, std::size_t Axes>
consteval bool axis_must_exist() {
  static_assert(space_position(SplitAxis, Axes) < Axes,
                "The convolution has no axis SplitAxis to split its images along: Conv1d has "
                "width, Conv2d height and width, Conv3d depth, height and width.");
  return true;
}

/// The window along A, of those along all axes of space.
template <Axis A, std::size_t Axes>
consteval Window window_along(const std::array<Window, Axes>& windows) {
  axis_must_exist<A, Axes>();
  constexpr std::size_t i = space_position(A, Axes);
  return i < Axes ? windows[i % Axes] : Window{};
}

/// Each check throws shape_error with both values that do not match.
struct ConvolutionChecks {
  std::size_t axes, in, out, groups, grain;

  constexpr void check_axes(const Shape& x) const {
    bool fits = x.rank() == axes + 2 && x[0].axis == Axis::batch && x[1].axis == Axis::channel;
    for (std::size_t i = 0; i < axes && fits; ++i)
      fits = x[2 + i].axis == space_axis(i, axes) && x[2 + i].grain == 1;
    if (!fits) throw_wrong_axes(x);
    if (x[1].known() && x[1].extent() != in) throw_wrong_channels(x);
  }

  /// The checks of dynamic channels, which the compiler could not make.
  constexpr void check_channels() const {
    if (in == 0 || out == 0 || in % groups != 0 || out % groups != 0 || out % grain != 0)
      throw_not_divisible();
  }

  /// Checks that every unit of the input's channels, which no shard cuts, has whole groups.
  constexpr void check_units(const Shape& x) const {
    if (x[1].known() && x[1].grain % (in / groups) != 0) throw_cut_groups(x);
  }

  /// Axis i of space of the output for images of shape x.
  constexpr Dim outputs(const Shape& x, std::size_t i, const Window& window) const {
    const Dim& dim = x[2 + i];
    const std::size_t extent = dim.known() ? window.outputs(dim.extent()) : dynamic;
    if (extent == 0) throw_too_small(x, dim, window);
    return {dim.axis, extent};
  }

 private:
  [[noreturn]] void throw_wrong_axes(const Shape& x) const;

  [[noreturn]] void throw_wrong_channels(const Shape& x) const;

  [[noreturn]] void throw_not_divisible() const;

  [[noreturn]] void throw_cut_groups(const Shape& x) const;

  [[noreturn]] void throw_too_small(const Shape& x, const Dim& dim, const Window& window) const;
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void ConvolutionChecks::throw_wrong_axes(const Shape& x) const {
  std::string wanted = "[batch, channel";
  for (std::size_t i = 0; i < axes; ++i) wanted += ", " + std::string(name(space_axis(i, axes)));
  throw shape_error({"the input is a tensor ", x, ", but a convolution over ", axes,
                     axes == 1 ? " axis" : " axes", " takes ", wanted,
                     "], of grain 1 along every axis of space"});
}

SHARDWISE_INLINE void ConvolutionChecks::throw_wrong_channels(const Shape& x) const {
  throw shape_error({"the input is a tensor ", x, ", but the weight has ", in, " input channels (",
                     out, " output): the input must have as many"});
}

SHARDWISE_INLINE void ConvolutionChecks::throw_not_divisible() const {
  throw shape_error({"a convolution of ", in, " input and ", out, " output channels cannot have ",
                     groups, " groups and keep ", grain,
                     " output channels together: there must be channels, equally many for each"});
}

SHARDWISE_INLINE void ConvolutionChecks::throw_cut_groups(const Shape& x) const {
  const std::string of_group = std::to_string(in / groups);
  throw shape_error({"the input is a tensor ", x, ", whose channels are kept together in units of ",
                     x[1].grain, ", but a group has ", of_group,
                     " of them, so that a shard could end within a group: let the layer in front "
                     "keep whole groups together (.grain = ",
                     of_group, "). The channels of a model's input are given as {Axis::channel, ",
                     groups, ", ", of_group, "}"});
}

SHARDWISE_INLINE void ConvolutionChecks::throw_too_small(const Shape& x, const Dim& dim,
                                                         const Window& window) const {
  const std::size_t padding = window.before + window.after;
  if (window.is_transposed) {
    throw shape_error({"the input is a tensor ", x, ", of whose ", name(dim.axis),
                       " a transposed convolution with ", padding,
                       " of padding leaves nothing: take a larger image or less padding"});
  }
  throw shape_error({"the input is a tensor ", x, ", too small for the kernel: ", window.kernel,
                     " taps with dilation ", window.dilation, " reach over ", window.reach(),
                     ", but its ", name(dim.axis), " is ", dim.extent(), " with ", padding,
                     " of padding: take a larger image, more padding or a smaller "
                     "kernel"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

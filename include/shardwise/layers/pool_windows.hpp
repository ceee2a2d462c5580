#pragma once
// The windows of a pooling layer.

#include <array>
#include <cstddef>
#include <string>

#include "shardwise/layers/window_options.hpp"
#include "shardwise/layout/window.hpp"

namespace shardwise {

/// The windows of a pooling layer with any number of axes of space; a single number is their size.
struct PoolWindows {
  /// All properties but the size.
  struct Options {
    PerAxis stride = 0;          ///< 0 means the size: windows do not overlap
    Padding padding = 0;         ///< zeros around the image; a maximum ignores them
    PerAxis dilation = 1;        ///< distance of neighbouring taps
    bool counts_padding = true;  ///< whether averages divide by all taps of a window
    bool ceil_mode = false;      ///< whether a last window may reach beyond the padded image
  };

  PerAxis size;       ///< taps
  Options options{};  ///< all other properties

  ///@{
  /// Only a size, or a size with options.
  constexpr PoolWindows(int all) : size(all) {}
  constexpr PoolWindows(PerAxis sizes, const Options& given) : size(sizes), options(given) {}
  ///@}

  /// The stride; 0 is replaced by the size.
  constexpr PerAxis stride() const { return options.stride.most() == 0 ? size : options.stride; }
};

/// `pool(3, {.stride = 2, .padding = 1})`, `pool({1, 2})`.
constexpr PoolWindows pool(PerAxis size, const PoolWindows::Options& options = {}) {
  return {size, options};
}

namespace detail {

/// Whether every padding is at most half of its window: then without dilation no window is all
/// padding.
template <std::size_t Axes, std::array<Window, Axes> Windows>
consteval bool padding_is_narrow() {
  bool narrow = true;
  for (const Window& window : Windows)
    narrow = narrow && 2 * window.before <= window.reach() && 2 * window.after <= window.reach();
  return narrow;
}

/// The windows along each axis.
template <std::size_t Axes, PoolWindows P>
consteval std::array<Window, Axes> pool_windows() {
  constexpr PoolWindows::Options o = P.options;
  static_assert(windows_must_exist<Axes, P.size, P.stride(), o.padding, o.dilation>());
  constexpr auto result = [] {
    auto all = windows<Axes>(P.size, P.stride(), P.options.padding, P.options.dilation);
    for (Window& window : all) window.ceil_mode = P.options.ceil_mode;
    return all;
  }();
  static_assert(padding_is_narrow<Axes, result>(),
                "The padding of a pooling layer is at most half of its window at every side: a "
                "wider one would make windows of nothing but padding.");
  return result;
}

/// "3x3, stride 2x2, padding 1x1": sizes, and the values that are not defaults.
template <std::size_t Axes>
std::string pool_name(const std::array<Window, Axes>& windows) {
  std::string size, stride, dilation, padding;
  bool side_by_side = true, dense = true, bare = true;
  for (const Window& window : windows) {
    const std::string by = size.empty() ? "" : "x";
    const auto number = [&](std::size_t n) { return by + std::to_string(n); };
    size += number(window.kernel);
    stride += number(window.stride);
    dilation += number(window.dilation);
    padding += window.before == window.after ? number(window.before)
                                             : by + '(' + std::to_string(window.before) + '+' +
                                                   std::to_string(window.after) + ')';
    side_by_side = side_by_side && window.stride == window.kernel;
    dense = dense && window.dilation == 1;
    bare = bare && window.before == 0 && window.after == 0;
  }
  if (!side_by_side) size += ", stride " + stride;
  if (!bare) size += ", padding " + padding;
  if (!dense) size += ", dilation " + dilation;
  if (windows[0].ceil_mode) size += ", ceil mode";
  return size;
}

}  // namespace detail

}  // namespace shardwise

#pragma once
// The properties of a convolution in its type, besides its channels.

#include <array>
#include <cstddef>
#include <string>

#include "shardwise/layers/window_options.hpp"
#include "shardwise/layout/window.hpp"

namespace shardwise {

/// The kernel of a convolution with any number of axes of space; a single number is its size.
struct Kernel {
  /// All properties but the size.
  struct Options {
    PerAxis stride = 1;    ///< distance of neighbouring windows
    Padding padding = 0;   ///< zeros around the image
    PerAxis dilation = 1;  ///< distance of neighbouring taps
    int groups = 1;        ///< each has its own input channels and output channels
    bool bias = true;      ///< one number for each output channel
    /// Output channels that shards keep together, for a grouped layer after this one.
    int grain = 1;
    PerAxis output_padding = 0;  ///< of a transposed convolution: rows and columns added at its end
  };

  PerAxis size;       ///< taps
  Options options{};  ///< all other properties

  ///@{
  /// Only a size, or a size with options.
  constexpr Kernel(int all) : size(all) {}
  constexpr Kernel(PerAxis sizes, const Options& given) : size(sizes), options(given) {}
  ///@}
};

/// `kernel(3, {.padding = 1})`, `kernel({3, 5}, {.stride = {2, 1}, .padding = same, .groups = 4})`.
constexpr Kernel kernel(PerAxis size, const Kernel::Options& options = {}) {
  return {size, options};
}

namespace detail {

/// The same for a known number of axes: equal convolutions have equal forms.
template <std::size_t Axes>
struct ConvolutionForm {
  std::array<Window, Axes> windows;  ///< one for each axis of space
  std::size_t groups = 1;            ///< as in Kernel::Options
  std::size_t grain = 1;             ///< as in Kernel::Options
  bool bias = true;                  ///< as in Kernel::Options

  /// Taps of one input channel.
  constexpr std::size_t taps() const {
    std::size_t product = 1;
    for (const Window& window : windows) product *= window.kernel;
    return product;
  }

  friend constexpr bool operator==(const ConvolutionForm&, const ConvolutionForm&) = default;
};

template <std::size_t Axes, Kernel K, bool IsTransposed = false>
consteval ConvolutionForm<Axes> form_of() {
  constexpr Kernel::Options o = K.options;
  static_assert(
      windows_must_exist<Axes, K.size, o.stride, o.padding, o.dilation, o.output_padding>());
  static_assert(IsTransposed || (o.output_padding.most() == 0 && o.output_padding.least() == 0),
                "Only a transposed convolution has an .output_padding: leave it away, or write "
                "ConvTranspose2d.");
  static_assert(o.groups > 0, "A convolution has at least one group.");
  static_assert(o.grain > 0, "Shards keep at least one output channel together: give .grain = 1.");
  const auto at_least_one = [](int n) { return static_cast<std::size_t>(n > 0 ? n : 1); };
  ConvolutionForm<Axes> form{windows<Axes>(K.size, o.stride, o.padding, o.dilation),
                             at_least_one(o.groups), at_least_one(o.grain), o.bias};
  for (std::size_t i = 0; i < Axes; ++i) {
    form.windows[i].is_transposed = IsTransposed;
    form.windows[i].added = static_cast<std::size_t>(o.output_padding.values[i]);
  }
  return form;
}

/// "3x3, stride 2x2, padding 1x(0+1)": the values that are not defaults, for names of layers.
template <std::size_t Axes>
std::string form_name(const ConvolutionForm<Axes>& form) {
  const auto number = [](std::size_t n) { return std::to_string(n); };
  std::string kernel, stride, dilation, padding, added;
  for (const Window& window : form.windows) {
    const std::string by = kernel.empty() ? "" : "x";
    kernel += by + number(window.kernel);
    stride += by + number(window.stride);
    dilation += by + number(window.dilation);
    added += by + number(window.added);
    const bool alike = window.before == window.after;
    padding += by + (alike ? number(window.before)
                           : '(' + number(window.before) + '+' + number(window.after) + ')');
  }
  const auto all = [&](const char* n) {
    std::string text = n;
    for (std::size_t i = 1; i < Axes; ++i) text += std::string("x") + n;
    return text;
  };
  std::string text = kernel;
  if (stride != all("1")) text += ", stride " + stride;
  if (padding != all("0")) text += ", padding " + padding;
  if (dilation != all("1")) text += ", dilation " + dilation;
  if (added != all("0")) text += ", output padding " + added;
  if (form.groups != 1) text += ", groups " + number(form.groups);
  if (form.grain != 1) text += ", grain " + number(form.grain);
  if (!form.bias) text += ", no bias";
  return text;
}

}  // namespace detail

}  // namespace shardwise

#pragma once
// Options of the windows of a convolution or pooling layer: one number for all axes of space, or
// one for each.

#include <algorithm>
#include <array>
#include <cstddef>

#include "shardwise/layout/window.hpp"

namespace shardwise {

/// One number for all axes of space: `3`, or one for each, outermost first: `{3, 5}`.
struct PerAxis {
  std::array<int, 3> values{};  ///< for each axis; the last given number fills the rest
  std::size_t count = 1;        ///< how many were given; 1 fits any number of axes

  ///@{
  /// One number for all axes, or one for each.
  constexpr PerAxis(int all) : values{all, all, all} {}
  constexpr PerAxis(int a, int b) : values{a, b, b}, count(2) {}
  constexpr PerAxis(int a, int b, int c) : values{a, b, c}, count(3) {}
  ///@}
  /// Public members, since nvcc writes template arguments of class type for the host compiler.
  constexpr PerAxis(const std::array<int, 3>& numbers, std::size_t given)
      : values(numbers), count(given) {}

  /// Whether there are as many numbers as axes, or one for all.
  constexpr bool fits(std::size_t axes) const { return count == 1 || count == axes; }
  ///@{
  /// The smallest and the largest of the numbers.
  constexpr int least() const { return *std::min_element(values.begin(), values.end()); }
  constexpr int most() const { return *std::max_element(values.begin(), values.end()); }
  ///@}
};

/// Zeros around an image: the same number at both ends of an axis (`1`, `{1, 2}`), other numbers at
/// each end (`sides(1, 0)`, `sides({1, 2}, {0, 2})`), or as many as keep its extents (`same`).
struct Padding {
  PerAxis before = 0;         ///< zeros before the image
  PerAxis after = 0;          ///< zeros after it
  bool keeps_extent = false;  ///< as many as keep the extents; the numbers are ignored

  ///@{
  /// The same number at both ends, or other numbers at each end.
  constexpr Padding(int all) : before(all), after(all) {}
  constexpr Padding(int a, int b) : before(a, b), after(a, b) {}
  constexpr Padding(int a, int b, int c) : before(a, b, c), after(a, b, c) {}
  constexpr Padding(PerAxis in_front, PerAxis behind, bool keeps)
      : before(in_front), after(behind), keeps_extent(keeps) {}
  ///@}

  /// Whether there are as many numbers as axes, or one for all.
  constexpr bool fits(std::size_t axes) const { return before.fits(axes) && after.fits(axes); }
};

/// Different numbers of zeros before and after the image.
constexpr Padding sides(PerAxis before, PerAxis after) { return {before, after, false}; }

/// If the number of zeros is odd, the last one is after the image. Needs stride 1.
/// source   torch.nn.Conv2d with padding='same'
inline constexpr Padding same{PerAxis(0), PerAxis(0), true};

namespace detail {

/// The errors of windows, reported where they are written.
template <std::size_t Axes, PerAxis Size, PerAxis Stride, Padding Zeros, PerAxis Dilation,
          PerAxis Added = PerAxis(0)>
consteval bool windows_must_exist() {
  static_assert(Size.fits(Axes) && Stride.fits(Axes) && Zeros.fits(Axes) && Dilation.fits(Axes) &&
                    Added.fits(Axes),
                "Give one number for all axes of space, or one for each: a layer of two axes takes "
                "3 or {3, 5}, and not {3, 5, 7}.");
  static_assert(Size.least() > 0 && Stride.least() > 0 && Dilation.least() > 0,
                "A window has a size, a stride and a dilation of at least 1 along every axis.");
  static_assert(Zeros.before.least() >= 0 && Zeros.after.least() >= 0,
                "Padding adds zeros, it cannot take elements away: give at least 0 at every side.");
  static_assert(!Zeros.keeps_extent || Stride.most() == 1,
                "Padding `same` keeps the extents of an image, which a stride above 1 does not: "
                "give the padding in numbers.");
  return true;
}

template <std::size_t Axes>
constexpr std::array<Window, Axes> windows(const PerAxis& size, const PerAxis& stride,
                                           const Padding& padding, const PerAxis& dilation) {
  const auto number = [](const PerAxis& given, std::size_t axis) {
    return static_cast<std::size_t>(given.values[axis]);
  };
  std::array<Window, Axes> windows;
  for (std::size_t i = 0; i < Axes; ++i) {
    Window& window = windows[i];
    window = {number(size, i), number(stride, i), number(dilation, i), number(padding.before, i),
              number(padding.after, i)};
    if (padding.keeps_extent) {
      window.before = (window.reach() - 1) / 2;
      window.after = window.reach() - 1 - window.before;
    }
  }
  return windows;
}

}  // namespace detail

}  // namespace shardwise

#pragma once
// A window that slides along one axis: the units that a convolution or a pooling reads per output.

#include <algorithm>
#include <cstddef>
#include <string>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/partition.hpp"

namespace shardwise {

/// Output o reads the units  p stride - before + k dilation,  k = 0 ... kernel - 1,  of the axis,
/// where p is o / repeats, rounded down; units outside the axis are padding. Kernel, stride,
/// dilation and repeats are at least 1. A value that can be a template argument:
/// `Window{.kernel = 3, .stride = 2, .before = 1, .after = 1}`, and `Window{.repeats = 2}` for
/// nearest upsampling. With `Window{.repeats = dynamic}` each axis says how often, see `on`.
///
/// That of a transposed convolution is the other way round: output o reads the units p that have a
/// tap k with  p stride - before + k dilation = o.  It neither repeats nor has a `ceil_mode`.
/// source   ONNX operators Conv and ConvTranspose, and torch.nn.Conv2d and ConvTranspose2d, which
///          agree on it; they do not repeat
struct Window {
  std::size_t kernel = 1;    ///< taps
  std::size_t stride = 1;    ///< units from the first tap of an output to that of the next
  std::size_t dilation = 1;  ///< units from one tap to the next
  std::size_t before = 0;    ///< padding in front of the first unit
  std::size_t after = 0;     ///< padding after the last unit
  std::size_t repeats = 1;   ///< neighbouring outputs that read the same units, or `dynamic`
  /// Whether a last output counts whose taps reach beyond the padding, if its first one does not.
  bool ceil_mode = false;
  bool is_transposed = false;  ///< whether it is that of a transposed convolution
  std::size_t added = 0;       ///< outputs at the end of a transposed one that need no tap

  /// The window on this axis: repeats that are `dynamic` are the readers of the axis.
  constexpr Window on(const Dim& dim) const {
    Window here = *this;
    if (repeats == dynamic) here.repeats = dim.readers;
    return here;
  }

  /// Whether output o reads only unit o.
  constexpr bool is_pointwise() const {
    return kernel == 1 && stride == 1 && before == 0 && after == 0 && repeats == 1;
  }

  /// Number of units from the first to the last one that an output reads.
  constexpr std::size_t reach() const { return (kernel - 1) * dilation + 1; }

  /// Number of outputs of an axis of `units` units; 0 if the padded axis is shorter than the
  /// window. In `ceil_mode` the axis may be shorter by less than a stride, and the last output
  /// begins on a unit or on the padding in front. Of a transposed one, padding takes outputs away.
  constexpr std::size_t outputs(std::size_t units) const {
    if (is_transposed) {
      const std::size_t all = units == 0 ? 0 : (units - 1) * stride + reach() + added;
      return all - std::min(all, before + after);
    }
    const std::size_t padded = before + units + after + (ceil_mode ? stride - 1 : 0);
    if (padded < reach()) return 0;
    const std::size_t last = (padded - reach()) / stride;
    const bool is_padding = ceil_mode && last * stride >= before + units;
    return (is_padding ? last : last + 1) * repeats;
  }

  /// The units, of `units`, from the first to the last one that these outputs read; empty if they
  /// read only padding. An output of a transposed one that reads nothing counts as if it read the
  /// unit before it.
  constexpr Interval reads(const Interval& outputs, std::size_t units) const {
    if (outputs.size == 0) return {};
    const std::size_t first = outputs.offset, last = outputs.end() - 1;
    const std::size_t begin = is_transposed ? std::min(first_unit(first), units)
                                            : clipped(first / repeats * stride, units);
    const std::size_t end = is_transposed ? std::min((last + before) / stride + 1, units)
                                          : clipped(last / repeats * stride + reach(), units);
    return {begin, end - begin};
  }

  /// The units, of `units`, that a rank holds for its block of the outputs: those that its outputs
  /// read. The first rank with outputs also holds the units before all windows, and the last one
  /// those after them, so that one rank alone holds the whole axis.
  constexpr Interval held_by(Place place, std::size_t units) const {
    const Interval all{0, outputs(units)};
    if (all.size == 0) return {0, place.rank == 0 ? units : 0};
    const Interval mine = block_of(all.size, place);
    if (mine.size == 0) return {};
    const Interval read = reads(mine, units);
    const std::size_t begin = mine.offset == 0 ? 0 : read.offset;
    const std::size_t end = mine.end() == all.end() ? units : read.end();
    return {begin, end - begin};
  }

  friend constexpr bool operator==(const Window&, const Window&) = default;

 private:
  /// The first unit that output `o` of a transposed window reads, or the one before it.
  constexpr std::size_t first_unit(std::size_t o) const {
    const std::size_t in_padded = o + before;
    return in_padded < reach() ? 0
                               : std::min(in_padded / stride, (in_padded - reach()) / stride + 1);
  }
  constexpr std::size_t clipped(std::size_t in_padded, std::size_t units) const {
    return in_padded < before ? 0 : std::min(in_padded - before, units);
  }
};

/// "kernel 3 stride 2 dilation 1 padding 1+1", or "repeats 2" for an upsampling.
[[gnu::cold]] std::string to_string(const Window& window);

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE std::string to_string(const Window& window) {
  if (window.repeats == dynamic) return "repeats dynamic";
  if (window.repeats > 1) return detail::sentence({"repeats ", window.repeats});
  std::string text = detail::sentence({"kernel ", window.kernel, " stride ", window.stride,
                                       " dilation ", window.dilation, " padding ", window.before,
                                       "+", window.after, window.ceil_mode ? " in ceil mode" : ""});
  if (window.is_transposed) detail::append(text, {" transposed, ", window.added, " added"});
  return text;
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE

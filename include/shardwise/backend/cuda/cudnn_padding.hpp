#pragma once
// Convolutions with more padding on one side than on the other, as on the first and the last rank
// of a split axis, for which the library may have no engine: of images that hold their padding.

#include <algorithm>
#include <cstddef>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/cuda/cudnn_graph.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/backend/detail/box_copy.hpp"
#include "shardwise/core/box.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/shape.hpp"

namespace shardwise::detail::cuda {

/// Whether the two sides of the axis differ.
constexpr bool pads_unequally(const SpatialAxis& axis) {
  return axis.before != padding_behind(axis);
}

inline bool pads_unequally(const ConvolutionCall& call) {
  return std::any_of(call.space.begin(), call.space.end(),
                     [](const SpatialAxis& axis) { return pads_unequally(axis); });
}

/// The same convolution of images that hold the padding of the axes on which it is unequal, and no
/// element that no window reads.
inline ConvolutionCall with_padding_inside(ConvolutionCall call) {
  for (SpatialAxis& axis : call.space) {
    if (!pads_unequally(axis)) continue;
    axis.input = axis.before + extent_read(axis) + padding_behind(axis);
    axis.before = 0;
  }
  return call;
}

/// The elements of a call's images that windows read, in those and among their padding.
class PaddedImages {
 public:
  /// `planes` are images times channels.
  PaddedImages(const ConvolutionCall& call, std::size_t planes)
      : box_{{Axis::batch, planes}}, plain_{box_, {}}, padded_{box_, {}} {
    const ConvolutionCall inside = with_padding_inside(call);
    constexpr Axis axes[] = {Axis::depth, Axis::height, Axis::width};
    for (std::size_t k = 0; k < 3; ++k) {
      const SpatialAxis& axis = call.space[k];
      box_.append({axes[k], extent_read(axis)});
      plain_.whole.append({axes[k], axis.input});
      padded_.whole.append({axes[k], inside.space[k].input});
      padded_.begin[k + 1] = axis.before - inside.space[k].before;
    }
  }

  /// Elements, padding included.
  std::size_t size() const { return padded_.whole.elements(); }

  /// padded = images, with zeros around them.
  template <class Backend, Real T>
  void pad(Backend& backend, const T* images, T* padded) const {
    clear(backend.session(), padded, size());
    copy_box(backend, box_, images, plain_, padded, padded_);
  }

  /// images = padded, without what lies around them. What no window reads is left alone.
  template <class Backend, Real T>
  void crop(Backend& backend, const T* padded, T* images) const {
    copy_box(backend, box_, padded, padded_, images, plain_);
  }

 private:
  Shape box_;
  BoxIn plain_;
  BoxIn padded_;
};

}  // namespace shardwise::detail::cuda

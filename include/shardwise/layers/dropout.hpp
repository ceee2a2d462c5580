#pragma once
// Dropout whose mask is the same at any number of ranks.

#include <cstddef>
#include <cstdint>

#include "shardwise/core/philox.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

/// In training y = x m / (1 - p), where m is 0 with probability p = Numerator / Denominator and
/// else 1; in evaluation y = x. m is drawn by seed, layer, step and *global* element, so ranks that
/// hold the same tensor draw the same mask, shards draw their part of it, and backward draws it
/// again instead of saving it.
/// layout   L -> L, for every L but Partial
/// sends    nothing
/// source   Srivastava et al. 2014, section 10 (scaled in training)
template <std::uint32_t Numerator, std::uint32_t Denominator>
struct Dropout : KeepsLayout {
  static_assert(Numerator < Denominator,
                "Dropout<Numerator, Denominator> drops that fraction of the elements: it must be "
                "at least 0 and less than 1, as in Dropout<1, 4>.");

  static constexpr Saves saves = Saves::nothing;
  static constexpr bool in_place = true;
  static constexpr bool random = true;

  template <class Frame, class X, class Y>
  void forward(Frame& frame, X x, Y y) const {
    apply_mask(frame, x, y);
  }

  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, DY dy, DX dx) const {
    apply_mask(frame, dy, dx);
  }

 private:
  static constexpr double probability = static_cast<double>(Numerator) / Denominator;

  template <class Frame, class In, class Out>
  static void apply_mask(Frame& frame, In in, Out out) {
    using T = typename Frame::dtype;
    using A = accumulate_t<T>;
    if (!frame.training()) {
      for (std::size_t i = 0; i < in.size(); ++i) out[i] = in[i];
      return;
    }
    const RandomStream stream = frame.random();
    const std::uint64_t first = frame.first_element();
    for_each_global_run(in, [&](std::size_t global, std::size_t local, std::size_t length) {
      const T* from = in.data() + local;
      T* to = out.data() + local;
      const std::uint64_t begin = first + global;
      stream.for_each_uniform(begin, begin + length, [&](std::uint64_t i, float u) {
        const bool keeps = static_cast<double>(u) >= probability;
        constexpr A scale = static_cast<A>(1.0 / (1.0 - probability));
        to[i - begin] = static_cast<T>(keeps ? static_cast<A>(from[i - begin]) * scale : A{0});
      });
    });
  }
};

}  // namespace shardwise

#pragma once
// Average pooling by oneDNN.

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <concepts>
#include <cstddef>

#include "shardwise/backend/detail/plan_cache.hpp"
#include "shardwise/backend/detail/pooling_loops.hpp"
#include "shardwise/backend/onednn/convolution_geometry.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/pooling.hpp"

namespace shardwise {

/// Means over windows; see PoolingBackend. Images keep their layout. The loops of the other
/// backends handle windows that may contain only padding: the library rejects them or divides by
/// zero. Plans are kept for the last different calls; a call that has a plan does not allocate in
/// shardwise. Throws backend_error if the library fails.
template <detail::OneDnnReal T>
class OneDnn::AveragePooling {
 public:
  ///@{
  /// As `PoolingBackend` says.
  explicit AveragePooling(OneDnn& backend) : backend_(&backend), loops_(backend) {}

  void forward(const PoolingCall& call, PoolingCall::Divisor divisor, const T* x, T* y) {
    if (!every_window_sees_some(call)) return loops_.forward(call, divisor, x, y);
    const ThreadLimit limit(backend_->threads_);
    forward_.get({call, divisor}, [&] { return make_forward(call, divisor); })
        .run(backend_->session_, {x, y});
  }

  void backward(const PoolingCall& call, PoolingCall::Divisor divisor, const T* dy, T* dx) {
    if (!adds_in_float || !every_window_sees_some(call))
      return loops_.backward(call, divisor, dy, dx);
    const ThreadLimit limit(backend_->threads_);
    if (Geometry(channels(call), call).leaves_out)
      std::fill_n(dx, call.planes() * call.input_plane(), T{});
    backward_.get({call, divisor}, [&] { return make_backward(call, divisor); })
        .run(backend_->session_, {dy, dx});
  }
  ///@}

 private:
  using ThreadLimit = detail::onednn::ThreadLimit;
  using Geometry = detail::onednn::ConvolutionGeometry;
  using Primitive = detail::onednn::Primitive;
  using MemoryDesc = detail::onednn::MemoryDesc;

  struct Key {
    PoolingCall call;
    PoolingCall::Divisor divisor;

    bool operator==(const Key&) const = default;
  };

  /// The library rounds a bf16 gradient after every window that it adds.
  static constexpr bool adds_in_float = std::same_as<T, float>;

  /// No extent is empty, and padding is narrower than the window at both sides.
  static bool every_window_sees_some(const PoolingCall& call) {
    const auto sees_some = [](const SpatialAxis& axis) {
      if (axis.output == 0 || axis.input == 0) return false;
      const std::size_t end = detail::onednn::end_of_windows(axis);
      const std::size_t beyond = axis.before + axis.input;
      const bool has_no_holes = axis.dilation == 1 || (axis.before == 0 && end <= beyond);
      return has_no_holes && axis.before < axis.kernel * axis.dilation &&
             end < beyond + axis.kernel * axis.dilation;
    };
    return call.planes() != 0 && std::all_of(call.space.begin(), call.space.end(), sees_some);
  }

  static ConvolutionChannels channels(const PoolingCall& call) {
    return {1, call.channels, call.channels};
  }

  static detail::onednn::ErrorContext context(const char* product, const PoolingCall& call) {
    return {product, dtype_v<T>, call.images, call.channels, call.channels};
  }

  /// The input of the plans for both directions.
  struct Problem {
    MemoryDesc x;
    MemoryDesc y;
    detail::onednn::PoolingSteps steps;
    detail::onednn::Attributes attributes;
    detail::onednn::Descriptor forward;
  };

  Problem problem(const PoolingCall& call, PoolingCall::Divisor divisor,
                  const detail::onednn::ErrorContext& context) const {
    using namespace detail::onednn;
    const Geometry g(channels(call), call);
    Problem p{g.x.plain(library_dtype(dtype_v<T>), context),
              g.y.plain(library_dtype(dtype_v<T>), context),
              {divisor == PoolingCall::Divisor::taps ? dnnl_pooling_avg_include_padding
                                                     : dnnl_pooling_avg_exclude_padding,
               g.kernel, g.steps},
              detail::onednn::attributes(Write::replace, Activation::none, context),
              {}};
    dnnl_primitive_desc_t desc = nullptr;
    check(create_pooling(&desc, backend_->session_.engine(), p.x.get(), p.y.get(), p.steps,
                         p.attributes),
          "the descriptor of pooling", context);
    p.forward.reset(desc);
    return p;
  }

  Primitive make_forward(const PoolingCall& call, PoolingCall::Divisor divisor) {
    const auto why = context("average pooling forward", call);
    const Problem p = problem(call, divisor, why);
    return {
        backend_->session_, p.forward, {{DNNL_ARG_SRC, p.x.get()}, {DNNL_ARG_DST, p.y.get()}}, why};
  }

  Primitive make_backward(const PoolingCall& call, PoolingCall::Divisor divisor) {
    const auto why = context("average pooling backward", call);
    const Problem p = problem(call, divisor, why);
    dnnl_primitive_desc_t desc = nullptr;
    detail::onednn::check(
        detail::onednn::create_pooling_backward(&desc, backend_->session_.engine(), p.x.get(),
                                                p.y.get(), p.steps, p.forward, p.attributes),
        "the descriptor of pooling's backward", why);
    const detail::onednn::Descriptor owner(desc);
    return {backend_->session_,
            owner,
            {{DNNL_ARG_DIFF_DST, p.y.get()}, {DNNL_ARG_DIFF_SRC, p.x.get()}},
            why};
  }

  OneDnn* backend_;
  detail::AveragePoolingLoops<T> loops_;
  detail::PlanCache<Key, detail::onednn::Primitive> forward_;
  detail::PlanCache<Key, detail::onednn::Primitive> backward_;
};

}  // namespace shardwise

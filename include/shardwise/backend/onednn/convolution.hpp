#pragma once
// Convolutions by oneDNN.

#include <algorithm>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/detail/plan_cache.hpp"
#include "shardwise/backend/detail/reference_convolution.hpp"
#include "shardwise/backend/onednn/convolution_plan.hpp"
#include "shardwise/backend/onednn/onednn.hpp"

namespace shardwise {

/// The products of one convolution; see ConvolutionBackend for shapes. If it pays, tensors are
/// copied into the layouts in which the library is fastest, and back. Plans are kept for the last
/// different calls; a call that has a plan does not allocate in shardwise. A weight is copied only
/// if it has changed since the last call. Throws backend_error if the library fails.
template <detail::OneDnnReal T>
class OneDnn::Convolution {
 public:
  ///@{
  /// As `ConvolutionBackend` says.
  Convolution(OneDnn& backend, const ConvolutionChannels& channels)
      : backend_(&backend), channels_(channels), sums_(backend, channels) {}

  void forward(const ConvolutionCall& call, const T* x, Weight<T> weight, const T* bias,
               Activation activation, T* y) {
    if (is_for_loops(call)) return sums_.forward(call, x, weight, bias, activation, y);
    const ThreadLimit limit(backend_->threads_);
    const ForwardKey key{call, activation, bias != nullptr};
    forward_
        .get(key,
             [&] {
               return detail::onednn::plan_forward(session(), {channels_, call}, key.with_bias,
                                                   activation,
                                                   context("convolution forward", call));
             })
        .run(session(), {x, weight.data, y, bias}, weight.version);
  }

  void backward(const ConvolutionCall& call, const T* x, const T* dy, Weight<T> weight, Write write,
                T* dw, T* db, T* dx) {
    if (is_for_loops(call)) return sums_.backward(call, x, dy, weight, write, dw, db, dx);
    const ThreadLimit limit(backend_->threads_);
    const detail::onednn::ConvolutionGeometry geometry(channels_, call);
    if (dx != nullptr && geometry.leaves_out)
      std::fill_n(dx, call.images * channels_.groups * channels_.in * call.input_plane(), T{});
    const BackwardKey key{call, {write, dw != nullptr, db != nullptr, dx != nullptr}};
    backward_
        .get(key,
             [&] {
               return detail::onednn::BackwardConvolution(session(), geometry, key.gradients,
                                                          context("convolution backward", call));
             })
        .run(session(), x, dy, weight.data, weight.version, {dw, db, dx});
  }
  ///@}

 private:
  using ThreadLimit = detail::onednn::ThreadLimit;

  struct ForwardKey {
    ConvolutionCall call;
    Activation activation;
    bool with_bias;

    bool operator==(const ForwardKey&) const = default;
  };
  struct BackwardKey {
    ConvolutionCall call;
    detail::onednn::ConvolutionGradients gradients;

    bool operator==(const BackwardKey&) const = default;
  };

  /// The cases of the readable loops: empty sums, sums over only padding, and cases that oneDNN
  /// 2.6.3 computes wrongly, in float too.
  bool is_for_loops(const ConvolutionCall& call) const {
    return is_empty(call) || !detail::onednn::float_is_right(call);
  }

  bool is_empty(const ConvolutionCall& call) const {
    const auto sees_nothing = [](const SpatialAxis& axis) {
      return detail::onednn::end_of_windows(axis) <= axis.before;
    };
    return call.images == 0 || channels_.groups * channels_.in * channels_.out == 0 ||
           call.input_plane() == 0 || call.output_plane() == 0 ||
           std::any_of(call.space.begin(), call.space.end(), sees_nothing);
  }

  detail::onednn::Session& session() { return backend_->session_; }

  detail::onednn::ErrorContext context(const char* product, const ConvolutionCall& call) const {
    return {product, dtype_v<T>, call.images, channels_.groups * channels_.in,
            channels_.groups * channels_.out};
  }

  OneDnn* backend_;
  ConvolutionChannels channels_;
  detail::ReferenceConvolution<T> sums_;
  detail::PlanCache<ForwardKey, detail::onednn::PlannedProduct> forward_;
  detail::PlanCache<BackwardKey, detail::onednn::BackwardConvolution> backward_;
};

}  // namespace shardwise

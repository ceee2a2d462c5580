#pragma once
// Convolutions by oneDNN.

#include <algorithm>
#include <cstddef>

#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/detail/reference_convolution.hpp"
#include "shardwise/backend/onednn/convolution_plan.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/onednn/plan_cache.hpp"

namespace shardwise {

/// The products of one convolution; see ConvolutionKernel for shapes. Tensors are copied into the
/// layouts in which the library computes fastest, and back, where that pays; a weight only when it
/// has changed.
/// Plans are kept for the last calls that differed, and a call like one of them allocates nothing
/// of ours. Throws backend_error if the library refuses.
template <OneDnnReal T>
class OneDnn::Convolution {
 public:
  Convolution(OneDnn& backend, const ConvolutionChannels& channels)
      : backend_(&backend), channels_(channels), sums_(backend, channels) {}

  void forward(const ConvolutionCall& call, const T* x, Weight<T> weight, const T* bias,
               Activation activation, T* y) {
    if (is_empty(call)) return sums_.forward(call, x, weight, bias, activation, y);
    const ThreadLimit limit(backend_->threads_);
    const Key key{call, activation, bias != nullptr, Write::replace};
    forward_
        .get(key,
             [&] {
               return detail::onednn::ForwardConvolution(session(), {channels_, call},
                                                         key.with_bias, activation,
                                                         purpose("convolution forward", call));
             })
        .run(session(), x, weight.data, weight.version, bias, y);
  }

  void backward_input(const ConvolutionCall& call, const T* dy, Weight<T> weight, T* dx) {
    if (is_empty(call)) return sums_.backward_input(call, dy, weight, dx);
    const ThreadLimit limit(backend_->threads_);
    const detail::onednn::ConvolutionGeometry geometry(channels_, call);
    if (geometry.leaves_out)
      std::fill_n(dx, call.images * channels_.groups * channels_.in * call.input_plane(), T{});
    backward_input_
        .get({call, Activation::none, false, Write::replace},
             [&] {
               return detail::onednn::InputGradient(session(), geometry,
                                                    purpose("convolution backward_input", call));
             })
        .run(session(), dy, weight.data, weight.version, dx);
  }

  void backward_weight(const ConvolutionCall& call, const T* x, const T* dy, Write write, T* dw,
                       T* db) {
    if (is_empty(call)) return sums_.backward_weight(call, x, dy, write, dw, db);
    if (db != nullptr) sums_.backward_bias(call, dy, write, db);
    const ThreadLimit limit(backend_->threads_);
    backward_weight_
        .get({call, Activation::none, false, write},
             [&] {
               return detail::onednn::KernelGradient(session(), {channels_, call}, write,
                                                     purpose("convolution backward_weight", call));
             })
        .run(session(), x, dy, dw);
  }

 private:
  using ThreadLimit = detail::onednn::ThreadLimit;

  struct Key {
    ConvolutionCall call;
    Activation activation;
    bool with_bias;
    Write write;

    bool operator==(const Key&) const = default;
  };
  template <class Plan>
  using Plans = detail::onednn::PlanCache<Key, Plan>;

  /// Sums over nothing, or of nothing but padding, are left to the readable loops.
  bool is_empty(const ConvolutionCall& call) const {
    const auto sees_nothing = [](const SpatialAxis& axis) {
      return detail::onednn::end_of_windows(axis) <= axis.before;
    };
    return call.images == 0 || channels_.groups * channels_.in * channels_.out == 0 ||
           call.input_plane() == 0 || call.output_plane() == 0 ||
           std::any_of(call.space.begin(), call.space.end(), sees_nothing);
  }

  detail::onednn::Session& session() { return backend_->session_; }

  detail::onednn::Purpose purpose(const char* product, const ConvolutionCall& call) const {
    return {product, dtype_v<T>, call.images, channels_.groups * channels_.in,
            channels_.groups * channels_.out};
  }

  OneDnn* backend_;
  ConvolutionChannels channels_;
  detail::ReferenceConvolution<T> sums_;
  Plans<detail::onednn::ForwardConvolution> forward_;
  Plans<detail::onednn::InputGradient> backward_input_;
  Plans<detail::onednn::KernelGradient> backward_weight_;
};

}  // namespace shardwise

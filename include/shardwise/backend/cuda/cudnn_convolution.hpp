#pragma once
// Convolutions on a GPU.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/cuda/bias_and_activation.hpp"
#include "shardwise/backend/cuda/cudnn_check.hpp"
#include "shardwise/backend/cuda/cudnn_convolution_graph.hpp"
#include "shardwise/backend/cuda/cudnn_plan.hpp"
#include "shardwise/backend/cuda/device.hpp"
#include "shardwise/backend/cuda/device_memory.hpp"
#include "shardwise/backend/cuda/fastest.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/backend/cuda/stream.hpp"
#include "shardwise/backend/detail/plan_cache.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/location.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail::cuda {

/// The elements of channel c of images [..., channels, plane], over all images.
template <Real T>
struct ElementsOfChannel {
  const T* images;
  std::size_t channels, plane;

  constexpr auto operator()(std::size_t c) const {
    return [elements = *this, first = c * plane](std::size_t k) {
      const std::size_t image = k / elements.plane * elements.channels * elements.plane;
      return static_cast<accumulate_t<T>>(elements.images[image + first + k % elements.plane]);
    };
  }
};

/// The tensor that the library writes.
inline const void*& result_among(ConvolutionPointers& pointers, ConvolutionProduct product) {
  switch (product) {
    case ConvolutionProduct::backward_input:
      return pointers.x;
    case ConvolutionProduct::backward_weight:
      return pointers.w;
    case ConvolutionProduct::forward:
      break;
  }
  return pointers.y;
}

/// See ConvolutionBackend for shapes; all tensors are on the device, and a call returns when its
/// work is on the stream. `Backend` has session(), and loops and sums on the session's stream, as
/// in `DeviceBackend`.
///
/// cuDNN computes the products, by engines that give the same bits in every run, so ranks that do
/// the same work stay equal. Bias and activation take one more pass over y: the two-byte dtypes are
/// rounded twice. Plans are kept for the last different calls; a call that has a plan does not
/// allocate in shardwise. A plan in a recorded CUDA graph lives as long as the object, since the
/// graph may run code of the plan. Tests replace `Plan`.
///
/// throws   backend_error if the library fails or the device does not compute in T, memory_error
template <class Backend, Real T, class Plan = CudnnPlan>
class CudnnConvolution {
 public:
  ///@{
  /// As `ConvolutionBackend` says.
  CudnnConvolution(Backend& backend, const ConvolutionChannels& channels)
      : backend_(&backend), channels_(channels) {
    require(session().device(), dtype_v<T>);
  }

  void forward(const ConvolutionCall& call, const T* x, Weight<T> weight, const T* bias,
               Activation activation, T* y) {
    in_place("forward", call, [&] {
      multiply(ConvolutionProduct::forward, call, Write::replace, {x, weight.data, y});
      const std::size_t plane = call.output_plane();
      finish(*backend_, y, call.images * outputs() * plane, bias, outputs(), plane, activation);
    });
  }

  void backward(const ConvolutionCall& call, const T* x, const T* dy, Weight<T> weight, Write write,
                T* dw, T* db, T* dx) {
    in_place("backward", call, [&] {
      if (dw != nullptr) multiply(ConvolutionProduct::backward_weight, call, write, {x, dw, dy});
      if (db != nullptr) backward_bias(call, dy, write, db);
      if (dx != nullptr)
        multiply(ConvolutionProduct::backward_input, call, Write::replace, {dx, weight.data, dy});
    });
  }
  ///@}

 private:
  std::size_t inputs() const { return channels_.groups * channels_.in; }
  std::size_t outputs() const { return channels_.groups * channels_.out; }
  Session& session() { return backend_->session(); }

  void backward_bias(const ConvolutionCall& call, const T* dy, Write write, T* db) {
    const std::size_t plane = call.output_plane();
    reduce_each(*backend_, outputs(), call.images * plane, accumulate_t<T>(0),
                ElementsOfChannel<T>{dy, outputs(), plane}, Plus{}, StoreSum<T>{write, db});
  }

  /// A product by the library. For Write::replace, the result is cleared first if the library is
  /// not called or does not write all of it.
  void multiply(ConvolutionProduct product, const ConvolutionCall& call, Write write,
                ConvolutionPointers pointers) {
    const ConvolutionProblem problem{product, dtype_v<T>, channels_,
                                     call,    write,      alignment_of(pointers)};
    const bool is_asked = !has_no_products(channels_, call);
    const bool writes_all =
        is_asked && (product != ConvolutionProduct::backward_input || !leaves_out(call));
    if (!writes_all && write == Write::replace)
      clear(session(), static_cast<T*>(const_cast<void*>(result_among(pointers, product))),
            result_size(problem));
    if (!is_asked) return;
    const bool stays = is_captured(session().stream().get());
    const Plan& plan = plans_[static_cast<std::size_t>(product)].get(
        problem, [&] { return choose_plan(problem, pointers); }, stays);
    check(plan.launch(session(), pointers), "cudnnBackendExecute");
  }

  /// The best plan by the library's heuristics or, if the options say so, by time, measured on
  /// these tensors and another result.
  Plan choose_plan(const ConvolutionProblem& problem, ConvolutionPointers pointers) {
    const bool times = session().options().time_candidates;
    std::vector<Plan> plans = Plan::usable(session(), problem, times ? 8 : 1);
    if (plans.size() == 1) return std::move(plans.front());
    require_no_capture(session().stream().get(), "engines cannot be timed");
    const DeviceBuffer trial(session().memory(), result_size(problem) * sizeof(T));
    result_among(pointers, problem.product) = trial.data();
    const std::size_t chosen =
        fastest(session(), plans.size(), "cudnnBackendExecute",
                [&](std::size_t i) { return plans[i].launch(session(), pointers); });
    return std::move(plans[chosen]);
  }

  /// The alignment of the addresses that the library may use.
  static std::int64_t alignment_of(const ConvolutionPointers& pointers) {
    constexpr std::size_t best = 16;
    const auto fits = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % best == 0; };
    const bool all = fits(pointers.x) && fits(pointers.w) && fits(pointers.y);
    return static_cast<std::int64_t>(all ? best : sizeof(T));
  }

  template <class F>
  void in_place(const char* what, const ConvolutionCall& call, F f) {
    const DescribedLocation here([&] {
      return "convolution " + std::string(what) + " of " + std::to_string(call.images) +
             " images, " + std::to_string(inputs()) + " -> " + std::to_string(outputs()) +
             " channels in " + std::string(name(dtype_v<T>));
    });
    const OnDevice on(session().device().index);
    f();
  }

  Backend* backend_;
  ConvolutionChannels channels_;
  std::array<PlanCache<ConvolutionProblem, Plan>, 3> plans_;  ///< of each product
};

}  // namespace shardwise::detail::cuda

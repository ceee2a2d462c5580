#pragma once
// Convolutions on a GPU.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/cuda/bias_and_activation.hpp"
#include "shardwise/backend/cuda/cudnn_graph.hpp"
#include "shardwise/backend/cuda/cudnn_padding.hpp"
#include "shardwise/backend/cuda/cudnn_plan.hpp"
#include "shardwise/backend/cuda/device.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/backend/cuda/stream.hpp"
#include "shardwise/backend/detail/plan_cache.hpp"
#include "shardwise/backend/detail/sums.hpp"
#include "shardwise/backend/tensor_memory.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::cuda {

/// The elements of channel c of images [..., channels, plane], those of all images.
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

/// db[c] = sum, or db[c] += sum.
template <Real T>
struct PutBiasGradient {
  T* db;
  Write write;

  constexpr void operator()(std::size_t c, accumulate_t<T> sum) const { store(db[c], sum, write); }
};

/// See ConvolutionKernel for shapes; all tensors are on the device, and a call returns when its
/// work is on the stream. `Backend` has session(), and loops and sums that are put on the session's
/// stream, as `DeviceBackend` says.
///
/// The products are cuDNN's, by engines that give the same bits in every run, so that ranks which
/// do the same work stay alike. Bias and activation are applied in one pass over y behind the
/// product: the two-byte dtypes are rounded twice. Where padding is unequal on the two sides and
/// the library has no engine for that, images are copied with their padding first. Plans are kept
/// for the last calls that differed, and a call like one of them allocates nothing of ours. A plan
/// that a CUDA graph recorded stays as long as the object, since the graph may run code that
/// belongs to it.
///
/// throws  backend_error if the library refuses or the device does not compute in T, memory_error
template <class Backend, Real T>
class CudnnConvolution {
 public:
  ///@{
  /// As `ConvolutionKernel` says.
  CudnnConvolution(Backend& backend, const ConvolutionChannels& channels)
      : backend_(&backend), channels_(channels) {
    require(session().device(), dtype_v<T>);
  }

  void forward(const ConvolutionCall& call, const T* x, Weight<T> weight, const T* bias,
               Activation activation, T* y) {
    const std::size_t size = call.images * outputs() * call.output_plane();
    if (size == 0) return;
    in_place("forward", call, [&] {
      if (has_no_products(channels_, call)) {
        clear(session(), y, size);
      } else {
        run(forward_, ConvolutionProduct::forward, call, Write::replace, {x, weight.data, y}, size);
      }
      finish(*backend_, y, size, bias, outputs(), call.output_plane(), activation);
    });
  }

  void backward(const ConvolutionCall& call, const T* x, const T* dy, Weight<T> weight, Write write,
                T* dw, T* db, T* dx) {
    in_place("backward", call, [&] {
      backward_weight(call, x, dy, write, dw);
      if (db != nullptr) backward_bias(call, dy, write, db);
      if (dx != nullptr) backward_input(call, dy, weight, dx);
    });
  }
  ///@}

 private:
  struct Key {
    ConvolutionCall call;
    Write write;
    std::int64_t alignment;

    bool operator==(const Key&) const = default;
  };
  struct Planned {
    CudnnPlan plan;
    bool pads;  ///< for images that hold their padding
  };
  using Plans = PlanCache<Key, Planned>;

  std::size_t inputs() const { return channels_.groups * channels_.in; }
  std::size_t outputs() const { return channels_.groups * channels_.out; }
  Session& session() { return backend_->session(); }

  void backward_weight(const ConvolutionCall& call, const T* x, const T* dy, Write write, T* dw) {
    const std::size_t size = outputs() * channels_.in * call.taps();
    if (size == 0) return;
    if (!has_no_products(channels_, call)) {
      run(backward_weight_, ConvolutionProduct::backward_weight, call, write, {x, dw, dy}, size);
    } else if (write == Write::replace) {
      clear(session(), dw, size);
    }
  }

  void backward_bias(const ConvolutionCall& call, const T* dy, Write write, T* db) {
    const std::size_t plane = call.output_plane();
    reduce_each(*backend_, outputs(), call.images * plane, accumulate_t<T>(0),
                ElementsOfChannel<T>{dy, outputs(), plane}, Plus{}, PutBiasGradient<T>{db, write});
  }

  void backward_input(const ConvolutionCall& call, const T* dy, Weight<T> weight, T* dx) {
    const std::size_t size = call.images * inputs() * call.input_plane();
    if (size == 0) return;
    if (has_no_products(channels_, call)) return clear(session(), dx, size);
    if (CudnnGeometry(channels_, call).leaves_out()) clear(session(), dx, size);
    run(backward_input_, ConvolutionProduct::backward_input, call, Write::replace,
        {dx, weight.data, dy}, size);
  }

  void run(Plans& plans, ConvolutionProduct product, const ConvolutionCall& call, Write write,
           const ConvolutionPointers& pointers, std::size_t result_size) {
    const Key key{call, write, alignment_of(pointers)};
    const bool stays = is_captured(session().stream().get());
    const Planned& planned = plans.get(
        key, [&] { return planned_for(product, key, pointers, result_size); }, stays);
    if (planned.pads)
      run_padded(planned.plan, product, call, pointers);
    else
      planned.plan.run(session(), pointers);
  }

  Planned planned_for(ConvolutionProduct product, const Key& key, ConvolutionPointers pointers,
                      std::size_t result_size) {
    const auto plan_of = [&](const ConvolutionCall& call, std::size_t size) {
      const ConvolutionOperation<T> operation(product, CudnnGeometry(channels_, call), key.write,
                                              key.alignment);
      return choose_plan(session(), graph_of(session().cudnn(), operation.get()), dtype_v<T>,
                         pointers, {product, size * sizeof(T)});
    };
    const bool may_pad = pads_unequally(key.call);
    try {
      if (std::optional<CudnnPlan> plan = plan_of(key.call, result_size))
        return {std::move(*plan), false};
      if (!may_pad) refuse_without_plan();
    } catch (const backend_error&) {
      if (!may_pad) throw;  // the library may refuse such padding as soon as it is told of it
    }
    const std::size_t padded_size = padded_images(key.call).size();
    pointers.x = session().padded_images(padded_size * sizeof(T));
    const bool gives_images = product == ConvolutionProduct::backward_input;
    std::optional<CudnnPlan> plan =
        plan_of(with_padding_inside(key.call), gives_images ? padded_size : result_size);
    if (!plan) refuse_without_plan();
    return {std::move(*plan), true};
  }

  PaddedImages padded_images(const ConvolutionCall& call) const {
    return PaddedImages(call, call.images * inputs());
  }

  /// Runs a plan for images with their padding inside on images without.
  void run_padded(const CudnnPlan& plan, ConvolutionProduct product, const ConvolutionCall& call,
                  ConvolutionPointers pointers) {
    const PaddedImages images = padded_images(call);
    T* const padded = static_cast<T*>(session().padded_images(images.size() * sizeof(T)));
    const void* const plain = std::exchange(pointers.x, padded);
    if (product == ConvolutionProduct::backward_input) {
      plan.run(session(), pointers);
      images.crop(*backend_, padded, static_cast<T*>(const_cast<void*>(plain)));
    } else {
      images.pad(*backend_, static_cast<const T*>(plain), padded);
      plan.run(session(), pointers);
    }
  }

  /// What the library may take the addresses to be multiples of.
  static std::int64_t alignment_of(const ConvolutionPointers& pointers) {
    constexpr std::size_t best = 16;
    const auto fits = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % best == 0; };
    const bool all = fits(pointers.x) && fits(pointers.w) && fits(pointers.y);
    return static_cast<std::int64_t>(all ? best : sizeof(T));
  }

  template <class F>
  void in_place(const char* what, const ConvolutionCall& call, F f) {
    try {
      const OnDevice on(session().device().index);
      f();
    } catch (error& e) {
      e.add_place("convolution " + std::string(what) + " of " + std::to_string(call.images) +
                  " images, " + std::to_string(inputs()) + " -> " + std::to_string(outputs()) +
                  " channels in " + std::string(name(dtype_v<T>)));
      throw;
    }
  }

  Backend* backend_;
  ConvolutionChannels channels_;
  Plans forward_;
  Plans backward_weight_;
  Plans backward_input_;
};

}  // namespace shardwise::detail::cuda

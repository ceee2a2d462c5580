#pragma once
// The kernels of `Far` (under nvcc those of a GPU) for tests that are written for memory of the
// host: what they pass in is copied there and back.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/convolution.hpp"
#include "shardwise/backend/pooling.hpp"
#include "shardwise/core/memory.hpp"
#include "support/far.hpp"

namespace testing {

class StagedBackend {
 public:
  template <shardwise::Real T>
  class Linear;
  template <shardwise::Real T>
  class Convolution;
  template <shardwise::Real T>
  class MaxPooling;
  template <shardwise::Real T>
  class AveragePooling;

  Far far;
  /// Elements by which all tensors lie behind an aligned address.
  std::size_t offset = 0;
  shardwise::Pool pool{far.memory()};
};

/// A tensor of the host and its copy far away; null is null there, too.
template <class T>
class StagedTensor {
  using Number = std::remove_const_t<T>;

 public:
  StagedTensor(StagedBackend& backend, T* here, std::size_t n)
      : backend_(backend), here_(here), n_(here == nullptr ? 0 : n) {
    if (here == nullptr) return;
    memory_ = backend.pool.take((n + backend.offset) * sizeof(T));
    there_ = static_cast<Number*>(memory_.data()) + backend.offset;
    if (n_ > 0) backend.far.to_device(here, n, there_);
  }

  Number* there() const { return there_; }
  void bring_back() {
    if (n_ > 0) backend_.far.to_host(static_cast<const Number*>(there_), n_, here_);
  }

 private:
  StagedBackend& backend_;
  T* here_;
  std::size_t n_;
  shardwise::Buffer memory_;
  Number* there_ = nullptr;
};

template <shardwise::Real T>
class StagedBackend::Linear {
 public:
  Linear(StagedBackend& backend, std::size_t in, std::size_t out)
      : backend_(backend), in_(in), out_(out), kernel_(backend.far, in, out) {}

  void forward(std::size_t rows, const T* x, shardwise::Weight<T> weight, const T* bias,
               shardwise::Activation activation, T* y) {
    const StagedTensor far_x(backend_, x, rows * in_), w(backend_, weight.data, out_ * in_),
        far_bias(backend_, bias, out_);
    StagedTensor far_y(backend_, y, rows * out_);
    kernel_.forward(rows, far_x.there(), shardwise::Weight<T>{w.there(), ++version_},
                    far_bias.there(), activation, far_y.there());
    far_y.bring_back();
  }

  void backward_input(std::size_t rows, const T* dy, shardwise::Weight<T> weight, T* dx) {
    const StagedTensor far_dy(backend_, dy, rows * out_), w(backend_, weight.data, out_ * in_);
    StagedTensor far_dx(backend_, dx, rows * in_);
    kernel_.backward_input(rows, far_dy.there(), shardwise::Weight<T>{w.there(), ++version_},
                           far_dx.there());
    far_dx.bring_back();
  }

  void backward_weight(std::size_t rows, const T* x, const T* dy, shardwise::Write write, T* dw,
                       T* db) {
    const StagedTensor far_x(backend_, x, rows * in_), far_dy(backend_, dy, rows * out_);
    StagedTensor far_dw(backend_, dw, out_ * in_), far_db(backend_, db, out_);
    kernel_.backward_weight(rows, far_x.there(), far_dy.there(), write, far_dw.there(),
                            far_db.there());
    far_dw.bring_back();
    far_db.bring_back();
  }

 private:
  StagedBackend& backend_;
  std::size_t in_, out_;
  Far::Linear<T> kernel_;
  std::uint64_t version_ = 0;
};

template <shardwise::Real T>
class StagedBackend::Convolution {
 public:
  Convolution(StagedBackend& backend, const shardwise::ConvolutionChannels& channels)
      : backend_(backend), channels_(channels), kernel_(backend.far, channels) {}

  void forward(const shardwise::ConvolutionCall& call, const T* x, shardwise::Weight<T> weight,
               const T* bias, shardwise::Activation activation, T* y) {
    const StagedTensor far_x(backend_, x, x_size(call)), w(backend_, weight.data, w_size(call)),
        far_bias(backend_, bias, outputs());
    StagedTensor far_y(backend_, y, y_size(call));
    kernel_.forward(call, far_x.there(), shardwise::Weight<T>{w.there(), ++version_},
                    far_bias.there(), activation, far_y.there());
    far_y.bring_back();
  }

  void backward(const shardwise::ConvolutionCall& call, const T* x, const T* dy,
                shardwise::Weight<T> weight, shardwise::Write write, T* dw, T* db, T* dx) {
    const StagedTensor far_x(backend_, x, x_size(call)), far_dy(backend_, dy, y_size(call)),
        w(backend_, weight.data, w_size(call));
    StagedTensor far_dw(backend_, dw, w_size(call)), far_db(backend_, db, outputs()),
        far_dx(backend_, dx, x_size(call));
    kernel_.backward(call, far_x.there(), far_dy.there(),
                     shardwise::Weight<T>{w.there(), ++version_}, write, far_dw.there(),
                     far_db.there(), far_dx.there());
    far_dw.bring_back();
    far_db.bring_back();
    far_dx.bring_back();
  }

 private:
  std::size_t outputs() const { return channels_.groups * channels_.out; }
  std::size_t x_size(const shardwise::ConvolutionCall& call) const {
    return call.images * channels_.groups * channels_.in * call.input_plane();
  }
  std::size_t y_size(const shardwise::ConvolutionCall& call) const {
    return call.images * outputs() * call.output_plane();
  }
  std::size_t w_size(const shardwise::ConvolutionCall& call) const {
    return outputs() * channels_.in * call.taps();
  }

  StagedBackend& backend_;
  shardwise::ConvolutionChannels channels_;
  Far::Convolution<T> kernel_;
  std::uint64_t version_ = 0;
};

inline std::size_t pooled_x(const shardwise::PoolingCall& call) {
  return call.images * call.channels * call.input_plane();
}
inline std::size_t pooled_y(const shardwise::PoolingCall& call) {
  return call.images * call.channels * call.output_plane();
}

template <shardwise::Real T>
class StagedBackend::MaxPooling {
 public:
  explicit MaxPooling(StagedBackend& backend) : backend_(backend), kernel_(backend.far) {}

  std::size_t record_bytes(const shardwise::PoolingCall& call) const {
    return kernel_.record_bytes(call);
  }
  void forward(const shardwise::PoolingCall& call, const T* x, T* y, void* record) {
    const StagedTensor far_x(backend_, x, pooled_x(call));
    StagedTensor far_y(backend_, y, pooled_y(call));
    StagedTensor far_record(backend_, static_cast<std::byte*>(record), record_bytes(call));
    kernel_.forward(call, static_cast<const T*>(far_x.there()), far_y.there(),
                    static_cast<void*>(far_record.there()));
    far_y.bring_back();
    far_record.bring_back();
  }
  void backward(const shardwise::PoolingCall& call, const T* dy, const void* record, T* dx) {
    const StagedTensor far_dy(backend_, dy, pooled_y(call));
    const StagedTensor far_record(backend_, static_cast<const std::byte*>(record),
                                  record_bytes(call));
    StagedTensor far_dx(backend_, dx, pooled_x(call));
    kernel_.backward(call, static_cast<const T*>(far_dy.there()),
                     static_cast<const void*>(far_record.there()), far_dx.there());
    far_dx.bring_back();
  }

 private:
  StagedBackend& backend_;
  Far::MaxPooling<T> kernel_;
};

template <shardwise::Real T>
class StagedBackend::AveragePooling {
 public:
  explicit AveragePooling(StagedBackend& backend) : backend_(backend), kernel_(backend.far) {}

  void forward(const shardwise::PoolingCall& call, shardwise::PoolingCall::Divisor divisor,
               const T* x, T* y) {
    const StagedTensor far_x(backend_, x, pooled_x(call));
    StagedTensor far_y(backend_, y, pooled_y(call));
    kernel_.forward(call, divisor, static_cast<const T*>(far_x.there()), far_y.there());
    far_y.bring_back();
  }
  void backward(const shardwise::PoolingCall& call, shardwise::PoolingCall::Divisor divisor,
                const T* dy, T* dx) {
    const StagedTensor far_dy(backend_, dy, pooled_y(call));
    StagedTensor far_dx(backend_, dx, pooled_x(call));
    kernel_.backward(call, divisor, static_cast<const T*>(far_dy.there()), far_dx.there());
    far_dx.bring_back();
  }

 private:
  StagedBackend& backend_;
  Far::AveragePooling<T> kernel_;
};

}  // namespace testing

// The loops of products, convolutions and pooling of `Cuda` as kernels.

#include "shardwise/backend/cuda/cuda.hpp"

using namespace shardwise;

static_assert(ConvolutionBackend<Cuda, float> && PoolingBackend<Cuda, float>);

template <Real T>
void use(Cuda& cuda, const PoolingCall& call, T* a, T* b, void* record) {
  typename Cuda::Linear<T> linear(cuda, 2, 3);
  linear.forward(4, a, {a, 1}, a, Activation::relu, b);
  linear.forward(4, a, {a, 1}, a, Activation::gelu_tanh, b);
  linear.backward_input(4, a, {a, 1}, b);
  typename Cuda::Convolution<T> convolution(cuda, {1, 2, 3});
  convolution.forward(call, a, {a, 1}, a, Activation::relu, b);
  convolution.backward(call, a, a, {a, 1}, Write::add, b, b, b);
  typename Cuda::MaxPooling<T> maxima(cuda);
  maxima.forward(call, a, b, record);
  maxima.backward(call, a, record, b);
  typename Cuda::AveragePooling<T> means(cuda);
  means.forward(call, PoolingCall::Divisor::elements, a, b);
  means.backward(call, PoolingCall::Divisor::taps, a, b);
}

template void use(Cuda&, const PoolingCall&, float*, float*, void*);
template void use(Cuda&, const PoolingCall&, double*, double*, void*);
template void use(Cuda&, const PoolingCall&, bf16*, bf16*, void*);
template void use(Cuda&, const PoolingCall&, fp16*, fp16*, void*);

// What of `Cuda` runs without a GPU, with NVIDIA's own libraries: what is said where there is no
// device. Where there is one, the gradients, which need no kernel of ours, against plain loops.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/backend/cuda/cudnn_check.hpp"
#include "shardwise/core/memory.hpp"

using namespace shardwise;

TEST_CASE("real cuda: where there is no device, the error says so") {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return;
  try {
    const Cuda cuda;
    FAIL_CHECK("nothing was thrown");
  } catch (const backend_error& e) {
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(text.rfind("Cuda: no device: cudaGetDeviceCount says cudaError", 0) == 0);
  }
}

TEST_CASE("real cuda: codes of the libraries are told by name") {
  const auto text_of = [](auto code) {
    try {
      detail::cuda::check(code, "a call");
    } catch (const error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(text_of(cudaSuccess) == "");
  CHECK(text_of(cudaErrorIllegalAddress).find("CUDA: a call failed with cudaErrorIllegalAddress") ==
        0);
  CHECK(text_of(CUBLAS_STATUS_NOT_SUPPORTED).find("CUBLAS_STATUS_NOT_SUPPORTED") !=
        std::string::npos);
  CHECK(text_of(CUDNN_STATUS_NOT_SUPPORTED_SHAPE).find("CUDNN_STATUS_NOT_SUPPORTED_SHAPE") !=
        std::string::npos);
  CHECK_THROWS_AS(detail::cuda::check(cudaErrorMemoryAllocation, "a call", 7), memory_error);
  CHECK_THROWS_AS(detail::cuda::check(CUBLAS_STATUS_ALLOC_FAILED, "a call"), memory_error);
  CHECK_THROWS_AS(detail::cuda::check(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, "call"),
                  memory_error);
}

namespace {

/// Small whole numbers, of which all sums here are exact in every dtype.
template <class T>
std::vector<T> numbers(std::size_t n) {
  std::vector<T> result;
  for (std::size_t i = 0; i < n; ++i)
    result.push_back(static_cast<T>(static_cast<float>(i * 7 % 5) - 2.0F));
  return result;
}

template <class T>
std::vector<double> back(Cuda& cuda, const Buffer& from, std::size_t n) {
  std::vector<T> values(n);
  cuda.to_host(static_cast<const T*>(from.data()), n, values.data());
  std::vector<double> result;
  for (const T value : values)
    result.push_back(static_cast<double>(static_cast<accumulate_t<T>>(value)));
  return result;
}

}  // namespace

TEST_CASE_TEMPLATE("real cuda: gradients on a GPU", T, float, double, bf16, fp16) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::cout << "skipped: products on a device: no GPU\n";
    return;
  }
  constexpr std::size_t rows = 13;
  constexpr std::size_t in = 6;
  constexpr std::size_t out = 9;
  Cuda cuda;
  Cuda::Linear<T> kernel(cuda, in, out);
  Pool pool(cuda.memory());
  const auto on_device = [&](std::size_t n) {
    const std::vector<T> values = numbers<T>(n);
    Buffer buffer = pool.take(n * sizeof(T));
    cuda.to_device(values.data(), n, static_cast<T*>(buffer.data()));
    return buffer;
  };
  const Buffer x = on_device(rows * in), w = on_device(out * in), dy = on_device(rows * out),
               dx = on_device(rows * in), dw = on_device(out * in), db = on_device(out);
  const auto at = [](const Buffer& buffer) { return static_cast<T*>(buffer.data()); };

  kernel.backward_input(rows, at(dy), {at(w), 1}, at(dx));
  kernel.backward_weight(rows, at(x), at(dy), Write::replace, at(dw), at(db));
  kernel.backward_weight(rows, at(x), at(dy), Write::add, at(dw), at(db));

  const std::vector<double> xs = back<T>(cuda, x, rows * in), ws = back<T>(cuda, w, out * in),
                            dys = back<T>(cuda, dy, rows * out);
  std::vector<double> dxs(rows * in), dws(out * in), dbs(out);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < out; ++o) {
      for (std::size_t i = 0; i < in; ++i) {
        dxs[r * in + i] += dys[r * out + o] * ws[o * in + i];
        dws[o * in + i] += 2 * dys[r * out + o] * xs[r * in + i];
      }
      dbs[o] += 2 * dys[r * out + o];
    }
  }
  CHECK(back<T>(cuda, dx, rows * in) == dxs);
  CHECK(back<T>(cuda, dw, out * in) == dws);
  CHECK(back<T>(cuda, db, out) == dbs);
}

// cuBLASLt's own ReLU, which is a choice.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/core/memory.hpp"

using namespace shardwise;

TEST_CASE(
    "the ReLU of cuBLASLt, which is a choice, is right for numbers; what becomes of a NaN is "
    "told") {
  Cuda backend(CudaOptions{.fused_relu = true});
  Pool pool(backend.memory());
  const auto there = [&](const std::vector<float>& values) {
    Buffer buffer = pool.take(values.size() * sizeof(float));
    backend.to_device(values.data(), values.size(), static_cast<float*>(buffer.data()));
    return buffer;
  };
  std::vector<float> rows(16 * 32, 1.0F), y(16 * 8, -999.0F);
  rows[0] = std::numeric_limits<float>::quiet_NaN();  // the first row's sums
  rows[32] = -100.0F;                                 // those of the second
  const Buffer x = there(rows), w = there(std::vector<float>(8 * 32, 1.0F)), out = there(y);
  Cuda::Linear<float> kernel(backend, 32, 8);
  kernel.forward(16, static_cast<const float*>(x.data()), {static_cast<const float*>(w.data()), 1},
                 nullptr, Activation::relu, static_cast<float*>(out.data()));
  backend.to_host(static_cast<const float*>(out.data()), y.size(), y.data());
  MESSAGE("cuBLASLt's ReLU makes of a NaN: " << y[0]);
  CHECK((std::isnan(y[0]) || y[0] == 0));
  CHECK(y[8] == 0);
  CHECK(y[16] == 32);
}

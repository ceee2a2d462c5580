// What of `Cuda` runs without a GPU, with NVIDIA's own libraries: what is said where there is no
// device, and what codes are called. On a GPU see gpu/test_kernels.cpp.

#include <doctest/doctest.h>

#include <string>

#include "shardwise/backend/attention.hpp"
#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/backend/cuda/cudnn_check.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/core/philox.hpp"
#include "support/skipped.hpp"

using namespace shardwise;

namespace {

template <class T>
constexpr bool has_attention =
    AttentionBackend<Cuda, T, detail::AttentionOperands<T, RandomStream>>;
static_assert(has_attention<bf16> && has_attention<fp16>);
static_assert(!has_attention<float> && !has_attention<double>);

}  // namespace

TEST_CASE("real cuda: where there is no device, the error says so") {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) {
    testing::skip("what is said where there is no GPU: there is one");
    return;
  }
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

// The graph API of cuDNN itself, as far as it works without a GPU: the library takes the
// descriptors of convolutions that we make.

#include <doctest/doctest.h>

#include <cstdint>
#include <random>

#include "shardwise/backend/cuda/cudnn_graph.hpp"
#include "support/seed.hpp"
#include "unit/backend/convolution_problem.hpp"

using namespace shardwise;
using namespace shardwise::detail::cuda;

namespace {

template <class T>
void describe(const CudnnGeometry& geometry) {
  constexpr auto unaligned = static_cast<std::int64_t>(sizeof(T));
  using Operation = ConvolutionOperation<T>;
  Operation(ConvolutionProduct::forward, geometry, Write::replace, 16);
  Operation(ConvolutionProduct::backward_input, geometry, Write::replace, unaligned);
  Operation(ConvolutionProduct::backward_weight, geometry, Write::replace, 16);
  Operation(ConvolutionProduct::backward_weight, geometry, Write::add, unaligned);
}

}  // namespace

TEST_CASE("cuDNN takes our descriptors of random convolutions") {
  CHECK(cudnnGetVersion() >= 90000);
  const unsigned first = testing::seed();
  std::mt19937 random(first);
  for (int k = 0; k < 200; ++k) {
    const backend_test::ConvolutionFormula f = backend_test::random_convolution(random);
    if (has_no_products(f.channels, f.call)) continue;
    INFO("seed " << first << ", number " << k << ": " << to_string(f));
    const CudnnGeometry geometry(f.channels, f.call);
    CHECK_NOTHROW(describe<float>(geometry));
    CHECK_NOTHROW(describe<double>(geometry));
    CHECK_NOTHROW(describe<bf16>(geometry));
    CHECK_NOTHROW(describe<fp16>(geometry));
  }
}

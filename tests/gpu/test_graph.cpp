// A forward that was recorded gives what it gives when it is called.

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/backend/cuda/graph.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/model.hpp"

using namespace shardwise;

namespace {

struct Mlp : Sequential<ColumnParallelLinear<64, 256>, Relu, RowParallelLinear<256, 32>> {};
using Ctx = Context<float, Cuda, SingleRank>;
using Forward = Model<Mlp, Ctx, Ends<Invariant, Invariant>, ForwardOnly>;

Tensor<float, Invariant> random_input(std::uint64_t tensor) {
  Tensor<float, Invariant> x({{Axis::batch, 16}, {Axis::feature, 64}});
  const RandomStream stream(Seed{3}, tensor, 0);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = stream.uniform(i) - 0.5F;
  return x;
}

std::vector<float> numbers(const Tensor<float, Invariant>& tensor) {
  return {tensor.data(), tensor.data() + tensor.size()};
}

}  // namespace

TEST_CASE("a recorded forward computes with what its input holds at each launch") {
  Cuda backend;
  SingleRank alone;
  Forward model(Mlp{}, alone, Seed{1}, {}, backend);
  const auto first = random_input(1);
  const auto second = random_input(2);
  const auto of_first =
      numbers(model.to_host(model.evaluate(model.to_device(first.view()).view())));
  const auto of_second =
      numbers(model.to_host(model.evaluate(model.to_device(second.view()).view())));
  REQUIRE(of_first != of_second);

  auto x = model.to_device(first.view());
  Forward::output_view y;
  CudaGraph graph(backend, [&] { y = model.evaluate(x.view()); });
  graph.launch();
  CHECK(numbers(model.to_host(y)) == of_first);
  backend.to_device(second.data(), second.size(), x.writable().data());
  graph.launch();
  CHECK(numbers(model.to_host(y)) == of_second);
}

TEST_CASE("work that waits for the device cannot be recorded, and the stream goes on") {
  Cuda backend;
  Pool pool(backend.memory());
  const Buffer memory = pool.take(sizeof(float));
  auto* const number = static_cast<float*>(memory.data());
  float here = 7;
  CHECK_THROWS_AS(CudaGraph(backend, [&] { backend.to_host(number, 1, &here); }), backend_error);
  backend.to_device(&here, 1, number);
  float back = 0;
  backend.to_host(number, 1, &back);
  CHECK(back == here);
}

// NCCL with one rank, and with as many as there are GPUs: collectives of every dtype and way to
// cut, and models that learn what one rank of the host learns in double.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/nccl.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/run/cuda_devices.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/largest_difference.hpp"
#include "support/skipped.hpp"
#include "support/staged_communicator.hpp"
#include "unit/comm/check_collectives.hpp"

using namespace shardwise;

namespace {

/// One, and as many as there are GPUs.
std::set<int> rank_counts() { return {1, CudaDevices::seen()}; }

using Device = testing::StagingDevice<Cuda>;
using Staged = testing::StagedCommunicator<NcclCommunicator, Cuda>;

/// Calls f(Staged&) on threads that have a GPU each.
template <class F>
void run_over_nccl(int ranks, F f) {
  run_ranks(ranks, [&](ThreadCommunicator& threads) {
    const auto device = std::make_shared<Device>(CudaOptions{.device = threads.rank()});
    NcclCommunicator nccl(threads, {.device = threads.rank(), .stream = device->backend.stream()});
    Staged staged(device, nccl);
    f(staged);
    CHECK(nccl.close());
  });
}

template <class T>
void check_dtype() {
  for (const int ranks : rank_counts()) {
    CAPTURE(ranks);
    run_over_nccl(ranks, [](Staged& group) { comm_test::check_everything<T>(group); });
  }
}

}  // namespace

TEST_CASE("nccl: float") { check_dtype<float>(); }
TEST_CASE("nccl: double") { check_dtype<double>(); }
TEST_CASE("nccl: bf16") { check_dtype<bf16>(); }
TEST_CASE("nccl: fp16") { check_dtype<fp16>(); }
TEST_CASE("nccl: int64") { check_dtype<std::int64_t>(); }
TEST_CASE("nccl: uint8") { check_dtype<std::uint8_t>(); }

TEST_CASE("nccl: messages go around") {
  for (const int ranks : rank_counts()) {
    if (ranks == 1) continue;
    run_over_nccl(ranks, [&](Staged& group) {
      const int next = (group.rank() + 1) % ranks;
      const int previous = (group.rank() + ranks - 1) % ranks;
      for (int i = 0; i < 5; ++i) {
        const std::vector<int> mine{group.rank(), i};
        std::vector<int> got(2, -1);
        if (group.rank() == 0) group.send(std::span<const int>(mine), next);
        group.receive(std::span(got), previous);
        if (group.rank() != 0) group.send(std::span<const int>(mine), next);
        CHECK(got == std::vector<int>{previous, i});
      }
    });
  }
}

TEST_CASE("nccl: parts of a group are groups") {
  for (const int ranks : rank_counts()) {
    run_over_nccl(ranks, [&](Staged& group) {
      Staged part = group.split(group.rank() % 2, -group.rank());
      CHECK(part.size() == (ranks + 1 - group.rank() % 2) / 2);
      comm_test::check_everything<float>(part);
      comm_test::check_everything<bf16>(group);
    });
  }
}

TEST_CASE("nccl: a device that there is not") {
  run_ranks(1, [](ThreadCommunicator& threads) {
    CHECK_THROWS_AS(NcclCommunicator(threads, {.device = 4096}), argument_error);
  });
}

namespace {

/// Its edges are a halo, all-gathers and reductions. A template, since nvcc 13.0 cannot name the
/// windows of a network that is none.
template <std::size_t Channels>
struct NetworkOf
    : Sequential<Conv2d<split::height, Channels, 3, kernel(3, {.padding = 1})>, Relu, To<Invariant>,
                 Flatten, ColumnParallelLinear<210, 13>, Tanh, RowParallelLinear<13, 5>> {};
using Network = NetworkOf<2>;

const Shape images{{Axis::batch, 6}, {Axis::channel, 2}, {Axis::height, 10}, {Axis::width, 7}};

template <class T>
constexpr double bound = sizeof(T) == 8            ? 1e-10
                         : sizeof(T) == 4          ? 1e-5
                         : std::is_same_v<T, bf16> ? 0.02
                                                   : 0.004;

/// Quarters in [-1, 1], the same in every dtype.
template <class T>
Tensor<T, Invariant> drawn(std::uint64_t step, Place place) {
  Tensor<T, Invariant> tensor(images, place);
  const RandomStream stream(Seed{5}, step, 0);
  for (std::size_t i = 0; i < tensor.size(); ++i)
    tensor[i] = static_cast<T>(static_cast<float>(stream.bits(i) % 9) / 4 - 1);
  return tensor;
}

Tensor<std::int32_t, Invariant> classes(Place place) {
  Tensor<std::int32_t, Invariant> labels({images[0]}, place);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 5);
  return labels;
}

/// The losses of three steps, and the weights behind them, of the first rank.
template <class T>
struct Lesson {
  std::vector<double>& learned;

  template <class C, class B>
  void operator()(C& group, B& backend) const {
    Model<Network, Context<T, B, C>> model(Network{}, group, Seed{1}, images, backend);
    Optimizer optimizer(model, Sgd{.learning_rate = 0.05, .momentum = 0.9});
    const auto labels = classes(place_of(group));
    std::vector<double> numbers;
    for (std::uint64_t step = 0; step < 3; ++step) {
      const auto x = drawn<T>(step, place_of(group));
      const auto there = model.to_device(x.view());
      const auto given = model.to_device(labels.view());
      numbers.push_back(train_step(model, there.view(), given.view(), CrossEntropy{}, optimizer));
    }
    std::vector<std::string> names;
    model.visit_parameters([&](auto& parameter) { names.push_back(parameter.name); });
    for (const std::string& name : names) {
      const auto whole = model.gather(name);
      for (std::size_t i = 0; i < whole.size(); ++i)
        numbers.push_back(static_cast<double>(static_cast<accumulate_t<T>>(whole[i])));
    }
    if (group.rank() == 0) learned = numbers;
  }
};

template <class T>
void check_learned(const std::vector<double>& learned) {
  std::vector<double> expected;
  SingleRank alone;
  with_device<Reference>(DeviceChoice::host, alone, Lesson<double>{expected});
  CHECK(testing::largest_difference(learned, expected) <= bound<T>);
}

}  // namespace

TEST_CASE_TEMPLATE("nccl: a model on one rank", T, float, bf16) {
  std::vector<double> learned;
  SingleRank alone;
  with_device<Reference, CudaDevices>(DeviceChoice::device, alone, Lesson<T>{learned});
  check_learned<T>(learned);
}

TEST_CASE_TEMPLATE("nccl: a model on all GPUs", T, float, bf16) {
  if (CudaDevices::seen() < 2) {
    testing::skip("a model on all GPUs: there is one");
    return;
  }
  std::vector<double> learned;
  run_ranks(CudaDevices::seen(), [&](ThreadCommunicator& threads) {
    with_device<Reference, CudaDevices>(DeviceChoice::device, threads, Lesson<T>{learned});
  });
  check_learned<T>(learned);
}

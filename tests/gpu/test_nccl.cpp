// NCCL with one rank, and with as many as there are GPUs; or with the processes that on_one_gpu.sh
// starts, as ranks. Collectives of every dtype and way to cut, and models that learn what one rank
// of the host learns in double.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/nccl.hpp"
#include "shardwise/comm/nccl_id_file.hpp"
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
#include "support/steps_on_mesh.hpp"
#include "unit/comm/check_collectives.hpp"
#include "unit/far_train/launches_on_mesh.hpp"

using namespace shardwise;

namespace {

/// Whether the ranks are processes that share a GPU.
bool are_processes() { return std::getenv("RANK") != nullptr; }

/// One, and as many as there are GPUs; or as many as there are processes.
std::set<int> rank_counts() {
  if (are_processes()) return {read_launch_environment().size};
  return {1, CudaDevices::seen()};
}

using Device = testing::StagingDevice<Cuda>;
using Staged = testing::StagedCommunicator<NcclCommunicator, Cuda>;

/// A new one for each group of processes.
std::filesystem::path next_id_file() {
  static int groups = 0;
  return std::filesystem::temp_directory_path() / ("id" + std::to_string(groups++));
}

/// Calls f(NcclCommunicator&, device) on this process.
template <class F>
void call_in_process(F f) {
  const LaunchEnvironment launch = read_launch_environment();
  const auto device = std::make_shared<Device>();
  NcclCommunicator nccl(nccl_id_in_file(next_id_file(), launch.rank), launch.rank, launch.size,
                        {.device = 0, .stream = device->backend.stream()});
  f(nccl, device);
  CHECK(nccl.close());
}

/// Calls f(Staged&) on threads that have a GPU each, or on this process.
template <class F>
void run_over_nccl(int ranks, F f) {
  const auto call = [&](NcclCommunicator& nccl, const std::shared_ptr<Device>& device) {
    Staged staged(device, nccl);
    f(staged);
  };
  if (are_processes()) return call_in_process(call);
  run_ranks(ranks, [&](ThreadCommunicator& threads) {
    const auto device = std::make_shared<Device>(CudaOptions{.device = threads.rank()});
    NcclCommunicator nccl(threads, {.device = threads.rank(), .stream = device->backend.stream()});
    call(nccl, device);
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
  std::vector<double> learned;
  if (are_processes()) {
    call_in_process([&](NcclCommunicator& nccl, const std::shared_ptr<Device>& device) {
      Lesson<T>{learned}(nccl, device->backend);
    });
    if (read_launch_environment().rank == 0) check_learned<T>(learned);
    return;
  }
  if (CudaDevices::seen() < 2) {
    testing::skip("a model on all GPUs: there is one");
    return;
  }
  run_ranks(CudaDevices::seen(), [&](ThreadCommunicator& threads) {
    with_device<Reference, CudaDevices>(DeviceChoice::device, threads, Lesson<T>{learned});
  });
  check_learned<T>(learned);
}

TEST_CASE("nccl: steps on a mesh, plain, beside backward, and recorded") {
  if (!are_processes()) {
    testing::skip("steps on a mesh: ranks are no processes");
    return;
  }
  call_in_process([](NcclCommunicator& nccl, const std::shared_ptr<Device>& device) {
    const int size = nccl.size();
    const mesh sizes = size == 4 ? mesh{.data = 2, .tensor = 2} : mesh{.data = size};
    MeshRanks<NcclCommunicator> ranks(nccl, sizes);
    Cuda& gpu = device->backend;
    for (const Keep keep :
         {Keep::whole, Keep::state_over_data, Keep::gradients_over_data, Keep::all_over_data}) {
      CAPTURE(static_cast<int>(keep));
      std::vector<double> expected;
      run_ranks(size, [&](ThreadCommunicator& threads) {
        MeshRanks<ThreadCommunicator> near_ranks(threads, sizes);
        Reference near;
        const auto numbers = testing::steps_on_mesh(near, near_ranks, keep);
        if (threads.rank() == nccl.rank()) expected = numbers;
      });
      CHECK(testing::largest_difference(testing::steps_on_mesh(gpu, ranks, keep), expected) <=
            1e-5);
      CHECK(testing::largest_difference(testing::steps_on_mesh<true>(gpu, ranks, keep), expected) <=
            1e-5);
      using Recorded = testing::OnMesh<float, Cuda, MeshRanks<NcclCommunicator>>;
      const StepOptions options{.clip_norm = 0.2};
      const testing::Bits launched = Recorded(gpu, ranks, keep, options).launched();
      const testing::Bits called = Recorded(gpu, ranks, keep, options).called();
      CHECK(launched.size() == called.size());
      if (sizes.data == 2) CHECK(launched == called);  // a sum of two has one order
    }
  });
}

// How the parts of `Cuda` begin, fail and end, on stand-ins for CUDA and cuBLASLt.

#include <doctest/doctest.h>

#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cuda/host_cuda.hpp"
#include "cuda/stand_in.hpp"
#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/core/memory.hpp"
#include "support/error_of.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::error_of;
using testing::HostCuda;
using testing::Machine;
using testing::OnDevice;

namespace {

template <class Set>
std::string error_of_options(Set set) {
  CudaOptions options;
  set(options);
  return error_of([&] { const Cuda cuda(options); });
}

}  // namespace

TEST_CASE("cuda: a device that is not there, or that cannot what is asked") {
  const Machine machine;
  const int alive = stand_in::alive;
  check_mentions(error_of_options([](CudaOptions& o) { o.device = 2; }),
                 {"argument_error: Cuda: device 2", "sees 2, 0 to 1", "CUDA_VISIBLE_DEVICES"});
  check_mentions(error_of_options([](CudaOptions& o) { o.device = -1; }), {"argument_error", "-1"});
  stand_in::major = 7;
  check_mentions(error_of_options([](CudaOptions& o) { o.tf32 = true; }),
                 {"backend_error", "Stand-in, compute capability 7.0", "TF32", "8.0"});
  {
    HostCuda cuda;
    check_mentions(error_of([&] { const HostCuda::Linear<bf16> kernel(cuda, 1, 1); }),
                   {"backend_error", "bfloat16", "capability 8.0", "float16"});
    const HostCuda::Linear<fp16> kernel(cuda, 1, 1);
  }
  stand_in::devices = 0;
  check_mentions(error_of_options([](CudaOptions&) {}),
                 {"backend_error: Cuda: no device", "says 0"});
  stand_in::has_driver = false;
  check_mentions(error_of_options([](CudaOptions&) {}),
                 {"backend_error: Cuda: no device: cudaGetDeviceCount says cudaErrorOfStandIn",
                  "another backend"});
  CHECK(stand_in::alive == alive);
}

TEST_CASE("cuda: the caller's stream, handle and memory are used, and stay") {
  const int before = stand_in::alive;
  cudaStream_t stream = nullptr;
  cublasLtHandle_t handle = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, 0) == cudaSuccess);
  REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  int given = 0;
  CudaOptions options;
  options.stream = stream;
  options.cublaslt = handle;
  options.allocate = [&](std::size_t bytes) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) == cudaSuccess) ++given;
    cudaGetLastError();
    return memory;
  };
  check_mentions(error_of([&] { const Cuda cuda(options); }), {"argument_error", "release"});
  options.release = [&](void* memory) {
    --given;
    cudaFree(memory);
  };
  {
    HostCuda cuda(options);
    CHECK(cuda.session().stream().get() == stream);
    CHECK(cuda.session().cublaslt() == handle);
    const OnDevice<float> x(cuda, {1.0F});
    CHECK(given == 1);
    const std::size_t free = std::exchange(stand_in::free_bytes, 100);
    check_mentions(error_of([&] { const OnDevice<float> y(cuda, std::vector<float>(1000)); }),
                   {"memory_error", "4000 bytes", "100 of"});
    stand_in::free_bytes = free;
  }
  CHECK(given == 0);
  CHECK(stand_in::alive == before + 2);
  options.device = 1;
  check_mentions(error_of([&] { const Cuda cuda(options); }),
                 {"argument_error", "stream is of device 0", "device is 1"});
  cudaStreamDestroy(stream);
  cublasLtDestroy(handle);
  CHECK(stand_in::alive == before);
}

TEST_CASE("cuda: memory goes back when the work that names it is done") {
  const Machine machine;
  std::string order;
  CudaOptions options;
  options.allocate = [](std::size_t bytes) {
    void* memory = nullptr;
    cudaMalloc(&memory, bytes);
    return memory;
  };
  options.release = [&](void* memory) {
    order += 'r';
    cudaFree(memory);
  };
  for (const bool of_caller : {true, false}) {
    HostCuda cuda(of_caller ? options : CudaOptions());
    {
      Pool pool(cuda.session().memory());
      const Buffer buffer = pool.take(1000);
      cuda.for_each(1, [&](std::size_t) { order += 'w'; });
    }
    CHECK(order == (of_caller ? "wr" : "wrw"));
  }
  CHECK(stand_in::misuse == "");
}

TEST_CASE(
    "cuda: each call that fails ends in an error of ours, leaks nothing, and goes when repeated") {
  const Machine machine;
  const int alive = stand_in::alive;
  CudaOptions options;
  options.device = 1;  // the thread's own is 0
  options.time_candidates = true;
  const auto use = [&](HostCuda& cuda, HostCuda::Linear<float>& kernel, const OnDevice<float>& m) {
    const Weight<float> weight{m.data(), 1};
    kernel.forward(2, m.data() + 16, weight, m.data(), Activation::gelu, m.data() + 32);
    kernel.backward_weight(2, m.data(), m.data() + 16, Write::add, m.data() + 32, m.data() + 64);
    kernel.backward_weight(0, m.data(), m.data(), Write::replace, m.data() + 32, m.data() + 64);
    float result = 0;
    cuda.session().staging().read(m.data(), sizeof result, &result, cuda.session().stream());
  };
  const auto all = [&] {
    HostCuda cuda(options);
    const OnDevice<float> m(cuda, std::vector<float>(96, 1.0F));
    HostCuda::Linear<float> kernel(cuda, 4, 3);
    const detail::cuda::OnDevice on(1);
    try {
      use(cuda, kernel, m);
    } catch (const error&) {
      stand_in::fails_at = 0;  // and then all is well
      use(cuda, kernel, m);
      throw;
    }
  };
  stand_in::calls = 0;
  all();
  const int calls = stand_in::calls;
  int silent = 0;
  for (int i = 1; i <= calls; ++i) {
    stand_in::calls = 0;
    stand_in::fails_at = i;
    const std::string text = error_of(all);
    CAPTURE(stand_in::failed);
    CAPTURE(text);
    CHECK(stand_in::alive == alive);
    if (text.empty()) {
      ++silent;
      // What ends does not throw, and a failing candidate is not chosen.
      CHECK((stand_in::failed == "cudaStreamSynchronize" || stand_in::failed == "cublasLtMatmul" ||
             stand_in::failed == "cudaSetDevice"));
    } else if (stand_in::failed == "cudaGetDevice") {
      CHECK(text.find("failed") != std::string::npos);
    } else {
      CHECK(text.find(stand_in::failed == "cudaMalloc" ? "memory_error" : stand_in::failed) !=
            std::string::npos);
    }
    stand_in::fails_at = 0;
    int device = 0;
    cudaGetDevice(&device);
    CHECK((device == 0 || stand_in::failed == "cudaSetDevice"));
    cudaSetDevice(0);
  }
  CHECK(calls > 150);
  CHECK(silent < 60);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(stand_in::misuse == "");
}

TEST_CASE("cuda: an error says what was computed, where, and what to do") {
  const Machine machine;
  HostCuda cuda;
  HostCuda::Linear<double> kernel(cuda, 2, 3);
  const OnDevice<double> m(cuda, std::vector<double>(32, 1.0));
  const auto forward = [&] {
    kernel.forward(4, m.data(), {m.data(), 1}, nullptr, Activation::none, m.data() + 16);
  };
  stand_in::has_algorithms = false;
  check_mentions(
      error_of(forward),
      {"backend_error: forward of 4 rows by a float64 weight [3, 2]: cuBLASLt: "
       "cublasLtMatmulAlgoGetHeuristic failed with no algorithm for this product on device "
       "0. The library does not do this on this device: use another dtype"});
  stand_in::has_algorithms = true;
  CHECK(error_of(forward) == "");
}

TEST_CASE("cuda: pools take the device's memory, and say what is free") {
  const Machine machine;
  const int alive = stand_in::alive;
  {
    Cuda cuda;
    Pool pool(cuda.memory());
    const Buffer buffer = pool.take(1000);
    CHECK(stand_in::is_on_device(buffer.data(), 1000));
    stand_in::free_bytes = 4096;
    check_mentions(error_of([&] { const Buffer more = pool.take(1 << 20); }),
                   {"memory_error", "1048576", "4096 of 1073741824 bytes are free on device 0"});
    const Buffer less = pool.take(2000);
  }
  CHECK(stand_in::alive == alive);
}

TEST_CASE("cuda: numbers go to the device and come back, more than fit the staging memory too") {
  Cuda cuda;
  Pool pool(cuda.memory());
  std::vector<int> numbers((std::size_t{9} << 20) / sizeof(int));
  std::iota(numbers.begin(), numbers.end(), 1);
  const Buffer buffer = pool.take(numbers.size() * sizeof(int));
  auto* const data = static_cast<int*>(buffer.data());
  cuda.to_device(numbers.data(), numbers.size(), data);
  std::vector<int> back(numbers.size());
  cuda.to_host(data, back.size(), back.data());
  CHECK(back == numbers);
  const int allocations = stand_in::allocations;
  const int waits = stand_in::waits_with_work_behind;
  cuda.to_host(data, back.size(), back.data());
  CHECK_MESSAGE(stand_in::waits_with_work_behind - waits == 4, "five pieces, each but the last");
  cuda.to_host(data, 0, back.data());
  CHECK(stand_in::allocations == allocations);
  Cuda other;
  other.to_host(data, 1, back.data());
  const int alive = stand_in::alive;
  other.to_host(data, 1, back.data());
  CHECK_MESSAGE(stand_in::alive == alive, "small copies need one piece");
}

TEST_CASE("cuda: a stream that waits for an event waits for the work before it") {
  detail::cuda::Stream first(0, nullptr);
  detail::cuda::Stream second(0, nullptr);
  std::string order;
  stand_in::push(first.get(), [&] { order += 'a'; });
  detail::cuda::Event event(detail::cuda::Event::Use::order);
  event.record(first.get());
  second.wait_for(event);
  stand_in::push(first.get(), [&] { order += 'c'; });
  stand_in::push(second.get(), [&] { order += 'b'; });
  second.synchronize();
  CHECK(order == "ab");
  first.synchronize();
  CHECK(order == "abc");
}

TEST_CASE("cuda: a device reaches its own memory, and all if it walks the host's page tables") {
  const Machine machine;
  HostCuda cuda;
  const CudaDevice device = detail::cuda::choose_device(0);
  const void* const there = cuda.session().scratch(100);
  const float here = 0;
  CHECK(detail::cuda::reaches(device, there));
  CHECK(!detail::cuda::reaches(device, &here));
  stand_in::memory_of_device = 1;
  CHECK(!detail::cuda::reaches(device, there));
  stand_in::reaches_all = true;
  CHECK(detail::cuda::reaches(device, &here));
}

TEST_CASE("cuda: a device reaches another one's memory, itself without being told") {
  const Machine machine;
  const CudaDevice first = detail::cuda::choose_device(0);
  detail::cuda::enable_peer_access(first, 0);
  CHECK(stand_in::peers_reached == 0);
  detail::cuda::enable_peer_access(first, 1);
  detail::cuda::enable_peer_access(first, 1);
  CHECK(stand_in::peers_reached == 1);
  CHECK(cudaGetLastError() == cudaSuccess);
  detail::cuda::enable_peer_access(detail::cuda::choose_device(1), 0);
  CHECK(stand_in::peers_reached == 2);

  stand_in::has_peer_access = false;
  check_mentions(error_of([&] { detail::cuda::enable_peer_access(first, 1); }),
                 {"backend_error: Cuda: device 0 (Stand-in, compute capability 9.0)",
                  "no peer access to device 1", "share a device, or talk over NCCL"});
  CHECK(stand_in::misuse.empty());
}

TEST_CASE("cuda: scratch memory grows by doubling, and what it was stays until the end") {
  const int alive = stand_in::alive;
  {
    HostCuda cuda;
    auto& session = cuda.session();
    CHECK(session.scratch(0) == nullptr);
    void* const small = session.scratch(1000);
    CHECK(session.scratch(500) == small);
    void* const large = session.scratch(1001);
    CHECK(large != small);
    CHECK(stand_in::is_on_device(small, 1000));
    CHECK(stand_in::is_on_device(large, 2000));
    CHECK(session.scratch(2000) == large);
  }
  CHECK(stand_in::alive == alive);
}

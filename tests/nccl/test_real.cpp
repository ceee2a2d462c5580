// What of NCCL itself runs without a GPU, with its own library: ids and how they travel, and what
// is said where there is no device. Where there is one, all collectives on one rank besides.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "shardwise/comm/file_rendezvous.hpp"
#include "shardwise/comm/nccl.hpp"
#include "shardwise/comm/tcp_rendezvous.hpp"
#include "support/temporary_folder.hpp"
#include "unit/comm_meeting/processes.hpp"

using namespace shardwise;
using namespace std::chrono_literals;

namespace {

std::string real_id() {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  return {id.internal, sizeof id.internal};
}

detail::DeviceCard card_with(const std::string& id) {
  detail::DeviceCard card;
  std::memcpy(card.id.data(), id.data(), id.size());
  return card;
}

bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

struct Alone {
  static int rank() { return 0; }
  static int size() { return 1; }
  static std::vector<Card> meet(const Card& mine) { return {mine}; }
};

/// Memory of the device with a copy of what stands on the host.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : size_(values.size()) {
    REQUIRE(cudaMalloc(&data_, size_ * sizeof(T)) == cudaSuccess);
    REQUIRE(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice) ==
            cudaSuccess);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }
  std::span<T> span() const { return {static_cast<T*>(data_), size_}; }
  std::vector<T> values() const {
    std::vector<T> result(size_);
    CHECK(cudaMemcpy(result.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost) ==
          cudaSuccess);
    return result;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

}  // namespace

TEST_CASE("real nccl: ids are of 128 bytes and differ") {
  std::set<std::string> ids;
  for (int i = 0; i < 4; ++i) ids.insert(real_id());
  CHECK(ids.size() == 4);
  CHECK(ids.begin()->size() == 128);
}

TEST_CASE("real nccl: an id of rank 0 reaches all processes whole, through a folder and over TCP") {
  const testing::TemporaryFolder folder("shardwise_ids");
  const std::string id = real_id();
  const auto arrives = [&](auto&& place, int rank) {
    const detail::DeviceCard mine = card_with(rank == 0 ? id : std::string(128, 'x'));
    const std::vector<Card> all = place.meet(mine.encode());
    return detail::DeviceCard::decode(all[0]).id == card_with(id).id;
  };
  CHECK(testing::run_in_processes(3, [&](int rank) {
          return arrives(FileRendezvous(folder.path() / "id", rank, 3, {"token", 20s}), rank);
        }) == 3);
  const int port = testing::free_port();
  CHECK(testing::run_in_processes(3, [&](int rank) {
          return arrives(TcpRendezvous("127.0.0.1", port, rank, 3, {"token", 20s}), rank);
        }) == 3);
}

TEST_CASE("real nccl: where there is no device, all ranks are told") {
  if (has_device()) return;
  Alone place;
  try {
    const NcclCommunicator nccl(place);
    FAIL_CHECK("nothing was thrown");
  } catch (const backend_error& e) {
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(text.rfind("rank 0: NCCL: no device: cudaGetDeviceCount says cudaError", 0) == 0);
  }
}

TEST_CASE("real nccl: one rank on a GPU") {
  if (!has_device()) {
    std::cout << "skipped: NCCL on a device: no GPU\n";
    return;
  }
  Alone place;
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  CHECK_THROWS_AS(NcclCommunicator(place, {4096, stream, 60s}), argument_error);
  NcclCommunicator nccl(place, {0, stream, 60s});
  const std::vector<float> data{1, 2, 3, 4};
  const std::vector<std::size_t> counts{4};
  const OnDevice<float> in(data);
  const auto check = [&](const char* what, auto&& call) {
    const OnDevice<float> out(std::vector<float>(4, -1.0F));
    call(out.span());
    nccl.wait();
    CAPTURE(what);
    CHECK(out.values() == data);
  };
  check("all_reduce", [&](std::span<float> out) { nccl.all_reduce(in.span(), out); });
  check("all_gather", [&](std::span<float> out) { nccl.all_gather(in.span(), out, counts); });
  check("reduce_scatter",
        [&](std::span<float> out) { nccl.reduce_scatter(in.span(), out, counts); });
  check("gather", [&](std::span<float> out) { nccl.gather(in.span(), out, counts, 0); });
  check("scatter", [&](std::span<float> out) { nccl.scatter(in.span(), out, counts, 0); });
  check("all_to_all",
        [&](std::span<float> out) { nccl.all_to_all(in.span(), counts, out, counts); });
  nccl.broadcast(in.span(), 0);
  nccl.barrier();
  NcclCommunicator part = nccl.split(-1, 0);
  part.barrier();
  CHECK(part.close());
  CHECK(nccl.close());
  cudaStreamDestroy(stream);
}

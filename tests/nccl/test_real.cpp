// What of NCCL itself runs without a GPU, with its own library: ids and how they travel, and what
// is said where there is no device. On GPUs see gpu/test_nccl.cpp.

#include <doctest/doctest.h>

#include <cstring>
#include <set>
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

detail::PeerInfo info_with(const std::string& id) {
  detail::PeerInfo info;
  std::memcpy(info.id.data(), id.data(), id.size());
  return info;
}

bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

struct Alone {
  static int rank() { return 0; }
  static int size() { return 1; }
  static std::vector<RendezvousPayload> meet(const RendezvousPayload& mine) { return {mine}; }
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
    const detail::PeerInfo mine = info_with(rank == 0 ? id : std::string(128, 'x'));
    const std::vector<RendezvousPayload> all = place.meet(mine.encode());
    return detail::PeerInfo::decode(all[0]).id == info_with(id).id;
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

// What of NCCL itself runs without a GPU, with its own library: ids, and what is said where there
// is no device. On GPUs see gpu/test_nccl.cpp.

#include <doctest/doctest.h>

#include <chrono>
#include <set>
#include <string>

#include "nccl/processes.hpp"
#include "shardwise/comm/detail/comm_id_variable.hpp"
#include "shardwise/comm/nccl.hpp"
#include "shardwise/comm/nccl_id_file.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "support/skipped.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;
using namespace std::chrono_literals;

namespace {

std::string text_of(const ncclUniqueId& id) { return {id.internal, sizeof id.internal}; }
std::string new_id() { return text_of(detail::nccl::new_id()); }

LaunchEnvironment launch_of(int rank, int size) {
  return {.launcher = "torchrun",
          .rank = rank,
          .size = size,
          .local_rank = {},
          .master_address = "127.0.0.1",
          .master_port = 29600};
}

bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

template <class F>
void check_no_device(const std::string& place, F&& f) {
  try {
    f();
    FAIL_CHECK("nothing was thrown");
  } catch (const backend_error& e) {
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(text.rfind(place + "NCCL: no device: cudaGetDeviceCount says cudaError", 0) == 0);
  }
}

}  // namespace

TEST_CASE("real nccl: ids are of 128 bytes and differ, except at one address") {
  const std::string at_address = [] {
    const detail::CommIdVariable variable(launch_of(0, 3));
    return new_id();
  }();
  std::set<std::string> ids{at_address};
  for (int i = 0; i < 4; ++i) ids.insert(new_id());
  CHECK(ids.size() == 5);
  CHECK(ids.begin()->size() == 128);
  CHECK(testing::run_in_processes(3, [&](int rank) {
          const detail::CommIdVariable variable(launch_of(rank, 3));
          return new_id() == at_address;
        }) == 3);
}

TEST_CASE("real nccl: an id of rank 0 reaches all processes whole, in a file") {
  const testing::TemporaryFolder folder("shardwise_ids");
  CHECK(testing::run_in_processes(3, [&](int rank) {
          const std::string id = text_of(nccl_id_in_file(folder.path() / "id", rank, 20s));
          return id == text_of(nccl_id_in_file(folder.path() / "id", 1, 20s));
        }) == 3);
}

TEST_CASE("real nccl: what is said where there is no device") {
  if (has_device()) {
    testing::skip("what is said where there is no GPU: there is one");
    return;
  }
  SingleRank alone;
  check_no_device("rank 0: ", [&] { NcclCommunicator nccl(alone); });
  check_no_device("rank 0: ", [] { NcclCommunicator nccl(launch_of(0, 1)); });
  check_no_device("NCCL_COMM_ID=127.0.0.1:29600: rank 1: ",
                  [] { NcclCommunicator nccl(launch_of(1, 2)); });
  CHECK(!detail::process_variable("NCCL_COMM_ID").has_value());
}

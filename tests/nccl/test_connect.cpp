// How the ranks of an NcclCommunicator connect, on a stand-in for NCCL.

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "nccl/ranks.hpp"
#include "nccl/stand_in.hpp"
#include "shardwise/comm/nccl_id_file.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;
using namespace std::chrono_literals;
using testing::check_mentions;
using testing::error_of;
using testing::nothing_is_left;
using testing::soon;
using testing::Stream;

namespace {

const LaunchEnvironment first_of_two{.launcher = "torchrun",
                                     .rank = 0,
                                     .size = 2,
                                     .local_rank = {},
                                     .master_address = "127.0.0.1",
                                     .master_port = 29600};

/// Whether two ranks add up what they give.
bool adds_up(NcclCommunicator nccl) {
  std::vector<int> data{nccl.rank() + 1};
  nccl.all_reduce(data, std::span(data));
  return nccl.close() && data[0] == 3;
}

}  // namespace

TEST_CASE("nccl: a rank without a device is named on every rank") {
  stand_in::devices = 1;
  run_ranks(2, [](ThreadCommunicator& threads) {
    const std::string text = error_of([&] {
      NcclCommunicator(threads, {threads.rank(), nullptr, 20s});
    });
    const std::string why =
        "NCCL: device 1 was asked for; this process sees 1, 0 to 0. Start no "
        "more ranks on a machine than it has GPUs";
    check_mentions(text, {threads.rank() == 1 ? "argument_error: rank 1: " + why
                                              : "peer_error: rank 1 cannot take part: " + why});
  });
  for (const bool has_driver : {true, false}) {
    stand_in::devices = 0;
    stand_in::has_driver = has_driver;
    SingleRank alone;
    check_mentions(
        error_of([&] { NcclCommunicator nccl(alone); }),
        {std::string("backend_error: rank 0: NCCL: no device: cudaGetDeviceCount says ") +
         (has_driver ? "0. Run on" : "cudaErrorOfStandIn")});
  }
  stand_in::has_driver = true;
  stand_in::devices = 8;
  CHECK(stand_in::alive == 0);
}

TEST_CASE("nccl: what NCCL refuses while ranks connect is told in its words, with what to do") {
  const Stream stream;
  stand_in::next_async_error = ncclInvalidUsage;
  SingleRank alone;
  check_mentions(
      error_of([&] {
        NcclCommunicator(alone, {0, stream.get(), 20s});
      }),
      {"backend_error: rank 0: NCCL: ncclCommInitRankConfig failed with code 5: words of the "
       "stand-in. its last error. Every rank has to call it once, with matching arguments, "
       "on a GPU of its own and with the same version of NCCL"});
  CHECK(stand_in::alive == 1);  // the stream
}

TEST_CASE("nccl: ranks connect at the launcher's address, which the next group does not use") {
  REQUIRE(std::getenv("NCCL_COMM_ID") == nullptr);
  const Stream streams[2];
  const int alive = stand_in::alive;
  bool second_is_right = false;
  std::thread second([&] {
    // The first rank has set the variable, and keeps it until this rank connects.
    if (!soon([&] { return stand_in::alive > alive; })) return;
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    second_is_right = adds_up(NcclCommunicator(id, 1, 2, {1, streams[1].get(), 20s}));
  });
  CHECK(adds_up(NcclCommunicator(first_of_two, {0, streams[0].get(), 20s})));
  second.join();
  CHECK(second_is_right);
  CHECK(std::getenv("NCCL_COMM_ID") == nullptr);
  testing::run_nccl_ranks(
      2, 20s, [](NcclCommunicator& nccl, ThreadCommunicator&) { CHECK(adds_up(nccl)); });
}

TEST_CASE("nccl: ranks that do not connect are given up after the time-out") {
  const Stream stream;
  const std::string why =
      "rank 0: NCCL: ncclCommInitRankConfig did not connect the ranks within 100 ms. ";
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  const std::string by_id = error_of([&] { NcclCommunicator(id, 0, 2, {0, stream.get(), 100ms}); });
  check_mentions(by_id, {"peer_error: " + why, "Every rank has to call it once"});
  check_mentions(error_of([&] {
                   NcclCommunicator(first_of_two, {0, stream.get(), 100ms});
                 }),
                 {"peer_error: NCCL_COMM_ID=127.0.0.1:29600: " + why});
  CHECK(std::getenv("NCCL_COMM_ID") == nullptr);
  CHECK(stand_in::alive == 1);  // the stream
}

TEST_CASE("nccl: rank 0 gives its id in a file") {
  const testing::TemporaryFolder folder("shardwise_id");
  const std::filesystem::path path = folder.path() / "id.77";
  run_ranks(2, [&](ThreadCommunicator& threads) {
    const Stream stream;
    if (threads.rank() == 0) std::this_thread::sleep_for(20ms);
    const ncclUniqueId id = nccl_id_in_file(path, threads.rank(), 20s);
    CHECK(adds_up(NcclCommunicator(id, threads.rank(), 2, {threads.rank(), stream.get(), 20s})));
  });
  CHECK(folder.names() == std::vector<std::string>{"id.77"});
  check_mentions(error_of([&] { nccl_id_in_file(path, 0); }),
                 {"argument_error: NCCL id file " + path.string() + " exists already"});
  const std::filesystem::path none = folder.path() / "none";
  check_mentions(error_of([&] { nccl_id_in_file(none, 1, 30ms); }),
                 {"peer_error: rank 1: after 30 ms, there is no NCCL id in " + none.string() +
                  ". Does rank 0 run, with this path"});
  for (const std::size_t bytes : {0U, 127U, 129U}) {
    const std::filesystem::path other = folder.write("other", std::string(bytes, 'x'));
    check_mentions(testing::message_of<data_error>([&] { nccl_id_in_file(other, 1, 20s); }),
                   {"NCCL id file " + other.string() + ": has " + std::to_string(bytes) +
                    " bytes, and an id of NCCL has 128"});
  }
  CHECK(nothing_is_left());
}

// Processes meet in a folder and over TCP, threads over a communicator; other programs, stale files
// and ranks that stay away.

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "shardwise/comm/file_rendezvous.hpp"
#include "shardwise/comm/rendezvous.hpp"
#include "shardwise/comm/tcp_rendezvous.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"
#include "unit/comm_meeting/processes.hpp"

using namespace shardwise;
using namespace std::chrono_literals;
using testing::free_port;
using testing::message_of;
using testing::run_in_processes;

namespace {

RendezvousPayload payload_of(int rank) {
  RendezvousPayload payload{};
  for (std::size_t i = 0; i < payload.size(); ++i)
    payload[i] = static_cast<std::byte>((static_cast<std::size_t>(rank) * 7 + i) & 0xffU);
  return payload;
}

bool are_right(const std::vector<RendezvousPayload>& payloads, int ranks) {
  if (payloads.size() != static_cast<std::size_t>(ranks)) return false;
  for (int r = 0; r < ranks; ++r)
    if (payloads[static_cast<std::size_t>(r)] != payload_of(r)) return false;
  return true;
}

/// A connection to that port of this machine, as soon as somebody listens; -1 after so many tries.
int connect_to(int port, in_addr_t to = INADDR_LOOPBACK, int tries = 200) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(to);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  for (int i = 0; i < tries; ++i) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
      return socket;
    ::close(socket);
    std::this_thread::sleep_for(10ms);
  }
  return -1;
}

/// What a rank leaves in a folder that is killed while it waits for the others.
void leave_behind(const std::filesystem::path& path, int rank, int size, const char* token) {
  const pid_t child = ::fork();
  if (child == 0) {
    FileRendezvous(path, rank, size, {token, 20s}).meet(payload_of(rank + 10));
    std::_Exit(0);
  }
  while (!std::filesystem::exists(path.string() + '.' + std::to_string(rank)))
    std::this_thread::sleep_for(1ms);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

bool has(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CAPTURE(part);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("rendezvous: over a communicator of threads") {
  std::atomic<int> right{0};
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    CommunicatorRendezvous place(ranks);
    static_assert(Rendezvous<CommunicatorRendezvous<ThreadCommunicator>>);
    if (are_right(place.meet(payload_of(ranks.rank())), 3)) ++right;
  });
  CHECK(right == 3);
}

TEST_CASE("rendezvous: processes meet in a folder, twice, and leave nothing there") {
  const testing::TemporaryFolder folder("shardwise_meeting");
  for (const int ranks : {1, 2, 5}) {
    for (const char* const token : {"first", "second"}) {
      CHECK(run_in_processes(ranks, [&](int rank) {
              FileRendezvous place(folder.path() / "meet", rank, ranks, {token, 20s});
              return are_right(place.meet(payload_of(rank)), ranks);
            }) == ranks);
      CHECK(std::filesystem::is_empty(folder.path()));
    }
  }
}

TEST_CASE(
    "rendezvous: ranks meet again and again at one place, and see the payloads of each meeting") {
  const testing::TemporaryFolder folder("shardwise_meeting");
  const std::filesystem::path path = folder.path() / "meet";
  constexpr int ranks = 4;
  constexpr int meetings = 12;
  const int port = free_port();
  for (const bool in_a_folder : {true, false}) {
    CAPTURE(in_a_folder);
    CHECK(run_in_processes(ranks, [&](int rank) {
            for (int meeting = 0; meeting < meetings; ++meeting) {
              if ((meeting + rank) % ranks == 0) std::this_thread::sleep_for(5ms);  // one is late
              std::vector<RendezvousPayload> payloads;
              if (in_a_folder)
                payloads = FileRendezvous(path, rank, ranks, {"one", 20s})
                               .meet(payload_of(meeting * ranks + rank));
              else
                payloads = TcpRendezvous("127.0.0.1", port, rank, ranks, {"one", 20s})
                               .meet(payload_of(meeting * ranks + rank));
              for (int r = 0; r < ranks; ++r)
                if (payloads[static_cast<std::size_t>(r)] != payload_of(meeting * ranks + r))
                  return false;
            }
            return true;
          }) == ranks);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("rendezvous: files of an earlier job, and files of anything, are passed over") {
  const testing::TemporaryFolder folder("shardwise_meeting");
  const std::filesystem::path path = folder.path() / "meet";
  for (const int rank : {0, 1}) leave_behind(path, rank, 3, "earlier");  // rank 2 never came
  std::ofstream(path.string() + ".2") << "no payload";
  std::ofstream(path.string() + ".all") << "no payloads";
  CHECK(run_in_processes(3, [&](int rank) {
          FileRendezvous place(path, rank, 3, {"now", 20s});
          return are_right(place.meet(payload_of(rank)), 3);
        }) == 3);
  CHECK(std::filesystem::is_empty(folder.path()));

  leave_behind(path, 1, 2, "earlier");
  FileRendezvous alone(path, 0, 2, {"now", 30ms});
  const std::string message = message_of([&] { alone.meet(payload_of(0)); });
  has(message,
      "rank 0 of 2: after 30 ms, rank 1 has not come; the file " + path.string() +
          ".1 is there, but the process that wrote it belongs to another job: its token differs");
  CHECK(!std::filesystem::exists(path.string() + ".0"));
}

TEST_CASE("rendezvous: a rank of the same job that was killed gives its payload to no other rank") {
  const testing::TemporaryFolder folder("shardwise_meeting");
  const std::filesystem::path path = folder.path() / "meet";
  leave_behind(path, 1, 2, "now");
  std::string message;
  CHECK(run_in_processes(2, [&](int rank) {
          if (rank == 0) {
            FileRendezvous place(path, 0, 2, {"now", 500ms});
            message = message_of([&] { place.meet(payload_of(0)); });
            return true;
          }
          while (!std::filesystem::exists(path.string() + ".all")) std::this_thread::yield();
          FileRendezvous place(path, 1, 2, {"now", 50ms});  // started again
          return has(
              message_of([&] { place.meet(payload_of(1)); }),
              "rank 1 of 2: after 50 ms, all ranks have come, but rank 0 has not written their");
        }) == 2);
  has(message, "rank 0 of 2: after 500 ms, rank 1 has not read the payloads of all ranks");
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE(
    "rendezvous: a rank that gives up in a folder names the missing ranks and removes its file") {
  const testing::TemporaryFolder folder("shardwise_meeting");
  const std::filesystem::path path = folder.path() / "meet";
  FileRendezvous second(path, 1, 3, {"t", 30ms});
  has(message_of([&] { second.meet(payload_of(1)); }),
      "rendezvous at " + path.string() + ", rank 1 of 3: after 30 ms, rank 0 and 2 has not come.");
  leave_behind(path, 0, 2, "t");  // rank 0, killed when it had come
  FileRendezvous waits(path, 1, 2, {"t", 30ms});
  has(message_of([&] { waits.meet(payload_of(1)); }),
      "after 30 ms, all ranks have come, but rank 0 has not written their payloads");
  CHECK(std::filesystem::exists(path.string() + ".0"));
  CHECK(!std::filesystem::exists(path.string() + ".1"));
}

TEST_CASE("rendezvous: what a place refuses to begin with") {
  CHECK_THROWS_WITH_AS(FileRendezvous("x", 0, 1, {}),
                       "FileRendezvous: no token is given, so a file of an earlier job would pass "
                       "for one of this; give all ranks one that no other job has, in "
                       "SHARDWISE_TOKEN",
                       argument_error);
  CHECK_THROWS_WITH_AS(FileRendezvous("x", 2, 2, {"t", 1s}),
                       "FileRendezvous: 2 is no rank; ranks are 0 to 1", argument_error);
  CHECK_THROWS_AS(FileRendezvous("x", 0, 0, {"t", 1s}), argument_error);
  CHECK_THROWS_AS(TcpRendezvous("localhost", 4000, -1, 2), argument_error);
  CHECK_THROWS_AS(TcpRendezvous("localhost", 4000, 0, 2, {std::string(257, 'x'), 1s}),
                  argument_error);
  CHECK_THROWS_WITH_AS(TcpRendezvous("", 4000, 0, 2),
                       "TcpRendezvous: no address is given; set MASTER_ADDR to one of rank 0's "
                       "machine",
                       argument_error);
  CHECK_THROWS_AS(TcpRendezvous("localhost", 0, 0, 2), argument_error);
  CHECK(are_right(TcpRendezvous("", 0, 0, 1).meet(payload_of(0)), 1));
  FileRendezvous nowhere("/no/such/folder/meet", 0, 2, {"t", 1s});
  CHECK_THROWS_AS(nowhere.meet(payload_of(0)), data_error);
}

TEST_CASE("rendezvous: processes meet over TCP, twice at one port") {
  const int port = free_port();
  for (const int ranks : {2, 8}) {
    for (const char* const token : {"", "secret"}) {
      CHECK(run_in_processes(ranks, [&](int rank) {
              if (rank == 0) std::this_thread::sleep_for(50ms);  // the others come too early
              LaunchEnvironment launch;
              launch.rank = rank;
              launch.size = ranks;
              launch.master_address = "127.0.0.1";
              launch.master_port = port;
              launch.token = token;
              TcpRendezvous place(launch, 20s);
              return are_right(place.meet(payload_of(rank)), ranks);
            }) == ranks);
    }
  }
}

TEST_CASE(
    "rendezvous: connections that send nothing, garbage, too little or too much delay no rank") {
  const int port = free_port();
  const auto began = std::chrono::steady_clock::now();
  CHECK(run_in_processes(4, [&](int rank) {
          if (rank == 3) {  // connects as something else first
            const std::string magic = "shardw01";
            std::vector<int> sockets;
            for (int i = 0; i < 40; ++i) {
              sockets.push_back(connect_to(port));
              std::string text;
              if (i % 4 == 1) text = std::string(100000, 'x');
              if (i % 4 == 2) text = magic;
              if (i % 4 == 3) text = magic + std::string(600, '\xff');
              if (sockets.back() < 0 || (!text.empty() && ::send(sockets.back(), text.data(),
                                                                 text.size(), MSG_NOSIGNAL) < 0))
                return false;
              if (i % 5 == 4) ::close(sockets.back());
            }
            TcpRendezvous place("127.0.0.1", port, 3, 4, {"secret", 20s});
            return are_right(place.meet(payload_of(3)), 4);
          }
          TcpRendezvous place("127.0.0.1", port, rank, 4, {"secret", 20s});
          return are_right(place.meet(payload_of(rank)), 4);
        }) == 4);
  CHECK(std::chrono::steady_clock::now() - began < 10s);
}

TEST_CASE("rendezvous: rank 0 listens at the given address only") {
  const int port = free_port();
  CHECK(run_in_processes(2, [&](int rank) {
          if (rank == 1) {
            ::close(connect_to(port));                                    // it does listen
            const bool elsewhere = connect_to(port, 0x7f000002, 1) >= 0;  // 127.0.0.2
            TcpRendezvous place("127.0.0.1", port, 1, 2, {"", 20s});
            return are_right(place.meet(payload_of(1)), 2) && !elsewhere;
          }
          TcpRendezvous place("127.0.0.1", port, 0, 2, {"", 20s});
          return are_right(place.meet(payload_of(0)), 2);
        }) == 2);
}

TEST_CASE("rendezvous: refused by rank 0 with the reason") {
  const int port = free_port();
  const struct {
    int rank, size;
    const char *token, *reason;
  } cases[] = {{1, 3, "another", "belongs to another job: its token differs"},
               {1, 3, "secretsecret", "belongs to another job: its token differs"},
               {1, 3, "", "belongs to another job: its token differs"},
               {1, 4, "secret", "expects another number of ranks"}};
  for (const auto& wrong : cases) {
    CAPTURE(wrong.reason);
    run_in_processes(2, [&](int rank) {
      if (rank == 0) {
        const std::string message = message_of([&] {
          TcpRendezvous("127.0.0.1", port, 0, 3, {"secret", 150ms}).meet(payload_of(0));
        });
        has(message,
            "rank 0 of 3: after 150 ms, rank 1 and 2 has not come. 1 connection(s) were "
            "made; one was refused because it " +
                std::string(wrong.reason));
        return true;
      }
      TcpRendezvous("127.0.0.1", port, wrong.rank, wrong.size, {wrong.token, 5s})
          .meet(payload_of(1));
      return false;
    });
  }
  // The same seen from the one who is refused: rank 0 is the child here.
  const int other = free_port();
  CHECK(run_in_processes(2, [&](int rank) {
          if (rank == 1) {
            message_of([&] {
              TcpRendezvous("127.0.0.1", other, 0, 2, {"a", 200ms}).meet(payload_of(0));
            });
            return true;
          }
          const std::string message = message_of([&] {
            TcpRendezvous("127.0.0.1", other, 1, 2, {"b", 5s}).meet(payload_of(1));
          });
          return has(message,
                     "rank 1 of 2: refused by rank 0, because this process belongs to "
                     "another job: its token differs");
        }) == 2);
}

TEST_CASE("rendezvous: two processes that call themselves the same rank") {
  const int port = free_port();
  int refused = -1;
  run_in_processes(3, [&](int rank) {
    if (rank == 0) {
      refused = has(message_of([&] {
                      TcpRendezvous("127.0.0.1", port, 0, 3, {"", 200ms}).meet(payload_of(0));
                    }),
                    "one was refused because it has the rank of a process that has already joined");
      return true;
    }
    TcpRendezvous("127.0.0.1", port, 1, 3, {"", 400ms}).meet(payload_of(1));
    return false;
  });
  CHECK(refused == 1);
}

TEST_CASE("rendezvous: ranks that stay away, ports that are taken, addresses of no machine") {
  const int port = free_port();
  TcpRendezvous first("127.0.0.1", port, 0, 3, {"", 30ms});
  has(message_of([&] { first.meet(payload_of(0)); }),
      "after 30 ms, rank 1 and 2 has not come. 0 connection(s) were made");
  TcpRendezvous second("127.0.0.1", port, 1, 3, {"", 30ms});
  has(message_of([&] { second.meet(payload_of(1)); }), "after 30 ms, no program listens there");

  const detail::Socket taken = detail::listen_at(detail::Addresses("127.0.0.1", port), 1);
  REQUIRE(static_cast<bool>(taken));
  has(message_of([&] { first.meet(payload_of(0)); }),
      "cannot listen there: Address already in use. The address must be one of this machine");
  TcpRendezvous elsewhere("192.0.2.1", port, 0, 2, {"", 30ms});
  has(message_of([&] { elsewhere.meet(payload_of(0)); }), "cannot listen there");
  TcpRendezvous nobody("no such name", port, 1, 2, {"", 30ms});
  CHECK_THROWS_AS(nobody.meet(payload_of(1)), argument_error);
}

TEST_CASE("rendezvous: a server that is none of ours is told from rank 0") {
  const int port = free_port();
  CHECK(run_in_processes(2, [&](int rank) {
          if (rank == 1) {
            const detail::Socket listening =
                detail::listen_at(detail::Addresses("127.0.0.1", port), 1);
            listening.wait(POLLIN, std::chrono::steady_clock::now() + 5s);
            const int visitor = ::accept(listening.descriptor(), nullptr, nullptr);
            const std::string text = "HTTP/1.1 400 Bad Request\r\n";
            const bool sent = ::send(visitor, text.data(), text.size(), MSG_NOSIGNAL) > 0;
            std::this_thread::sleep_for(100ms);
            return sent;
          }
          TcpRendezvous place("127.0.0.1", port, 1, 2, {"", 5s});
          return has(message_of([&] { place.meet(payload_of(1)); }),
                     "the program that listens there is not rank 0 of this job");
        }) == 2);
}

TEST_CASE("rendezvous: a rank that came and left has not come, and may come again") {
  const int port = free_port();
  const auto meet = [&](int rank, std::chrono::milliseconds timeout) {
    return are_right(
        TcpRendezvous("127.0.0.1", port, rank, 3, {"", timeout}).meet(payload_of(rank)), 3);
  };
  for (const bool comes_again : {true, false}) {
    CAPTURE(comes_again);
    std::string message;
    const int right = run_in_processes(3, [&](int rank) {
      if (rank == 2) std::this_thread::sleep_for(200ms);
      if (rank == 1) {
        const std::string early = message_of([&] { meet(1, 50ms); });
        return has(early, "after 50 ms, not all ranks have come") && (!comes_again || meet(1, 5s));
      }
      bool met = false;
      message = message_of([&] { met = meet(rank, comes_again ? 5000ms : 500ms); });
      return met;
    });
    CHECK(right == (comes_again ? 3 : 1));
    if (!comes_again) has(message, "after 500 ms, rank 1 has not come");
  }
}

TEST_CASE("rendezvous: a process without a descriptor for the other ranks says so at once") {
  const int port = free_port();
  const auto leave_descriptors = [](int count) {  // to what opens next
    const int next = ::dup(0);
    ::close(next);
    const auto most = static_cast<rlim_t>(next + count);
    const rlimit limit{most, most};
    return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  };
  for (const int spare : {0, 1}) {  // beside the one that listens
    CAPTURE(spare);
    int unused = -1;
    CHECK(
        run_in_processes(2, [&](int process) {
          if (process == 1) {  // rank 0, for the limit cannot be raised again
            if (!leave_descriptors(1 + spare)) return false;
            TcpRendezvous place("127.0.0.1", port, 0, 2, {"", 5s});
            if (spare == 1) return are_right(place.meet(payload_of(0)), 2);
            const auto began = std::chrono::steady_clock::now();
            return has(message_of([&] { place.meet(payload_of(0)); }),
                       "rank 0 of 2: cannot accept the other ranks: Too many open files. It needs "
                       "a "
                       "descriptor for each of them; raise the limit of open files (ulimit -n)") &&
                   std::chrono::steady_clock::now() - began < 4s;
          }
          unused = connect_to(port);
          if (spare == 0) return true;
          return are_right(TcpRendezvous("127.0.0.1", port, 1, 2, {"", 5s}).meet(payload_of(1)), 2);
        }) == 2);
    ::close(unused);
  }
}

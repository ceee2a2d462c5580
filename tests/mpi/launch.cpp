// What happens to a job, for launch.sh: `launch throw|memory|stray|leave|differ|all|ranks N`, on a
// mesh `launch mesh_throw|mesh [SIZES]`, and with a short SHARDWISE_TIMEOUT
// `launch stop|stop_local|longer|receive|groups|mesh_axis`. `launch told DIR` goes on until a
// signal comes.

#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "shardwise/checkpoint/stop_request.hpp"
#include "shardwise/comm/describe_mesh.hpp"
#include "shardwise/comm/mesh_sizes.hpp"
#include "shardwise/comm/mpi_mesh.hpp"
#include "shardwise/comm/mpi_ranks.hpp"

using namespace shardwise;

namespace {

/// The last rank fails; the others wait for it in a sum that it will never join.
template <class Fail>
void fail_on_last(Fail fail, MpiOptions options = {}) {
  run_mpi_ranks(
      [&](MpiCommunicator& ranks) {
        std::vector<float> data(100000, 1);
        ranks.all_reduce<float>(data, data);
        if (ranks.rank() == ranks.size() - 1) return fail(ranks);
        ranks.all_reduce<float>(data, data);
        std::printf("a rank went on\n");
      },
      options);
}

void stop(MpiCommunicator&) { std::raise(SIGSTOP); }

void receive(MpiCommunicator& ranks) {
  std::vector<float> data(4);
  ranks.receive(std::span(data), 0);
}

/// Rank 1 finds that the block of rank 0 is too long while it waits for that of the last rank,
/// which has stopped. No error may leave the memory for that.
void receive_longer_block(MpiCommunicator& ranks) {
  if (ranks.rank() == ranks.size() - 1) return stop(ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // MPICH 4.0 asks it
  const auto size = static_cast<std::size_t>(ranks.size());
  std::vector<std::size_t> sent(size), received(size);
  if (ranks.rank() == 0) sent[1] = 3;
  if (ranks.rank() == 1) received[0] = received[size - 1] = 1;
  const std::vector<float> in(sent[1]);
  std::vector<float> room(8);
  try {
    ranks.all_to_all<float>(in, sent, std::span(room).first(2 * received[0]), received);
    ranks.barrier();
  } catch (const error&) {
    std::printf("a rank went on\n");
  }
}

/// Two groups of the same ranks, which the last rank enters the other way round.
void enter_groups_in_another_order() {
  run_mpi_ranks([](MpiCommunicator& ranks) {
    MpiCommunicator first = ranks.split(0, 0);
    MpiCommunicator second = ranks.split(0, 0);
    const bool is_last = ranks.rank() == ranks.size() - 1;
    (is_last ? second : first).barrier();
    (is_last ? first : second).barrier();
    std::printf("a rank went on\n");
  });
}

/// Steps until a signal comes to any rank. Each rank writes the number of its process to a file.
int step_until_told(const std::filesystem::path& folder) {
  StopRequest stop{SIGTERM, SIGUSR1};
  run_mpi_ranks([&](MpiCommunicator& ranks) {
    const auto file = folder / std::to_string(ranks.rank());
    std::ofstream(file.string() + ".new") << ::getpid();
    std::filesystem::rename(file.string() + ".new", file);
    while (!stop.agreed(ranks)) {
    }
    ranks.barrier();
    std::printf("rank %d of %d stops by signal %d\n", ranks.rank(), ranks.size(), stop.signal());
  });
  return stop.exit_code();
}

void make_different_calls(MpiCommunicator& ranks) {
  std::vector<float> one{1};
  ranks.rank() == 0 ? ranks.barrier() : ranks.all_reduce<float>(one, one);
  std::printf("a rank went on\n");
}

// begin: function
void report(MpiCommunicator& ranks) {
  std::vector<float> one{1};
  ranks.all_reduce<float>(one, one);
  if (ranks.rank() == 0)
    std::printf("%d ranks, sum %g\n", ranks.size(), static_cast<double>(one[0]));
}
// end: function

// begin: mesh
void report_mesh(MeshRanks<MpiCommunicator>& ranks) {
  const std::string text = describe(ranks);  // a collective
  if (ranks.rank() == 0) std::fputs(text.c_str(), stdout);
  std::vector<float> one{1};
  ranks.along(MeshAxis::tensor).all_reduce<float>(one, one);
  ranks.along(MeshAxis::data).all_reduce<float>(one, one);
  if (ranks.rank() == 0) std::printf("sum %g\n", static_cast<double>(one[0]));
}
// end: mesh

void sum_along(MeshRanks<MpiCommunicator>& ranks, MeshAxis axis) {
  std::vector<float> data(100000, 1);
  ranks.along(axis).all_reduce<float>(data, data);
}

/// The last rank fails in its second step; others wait for it along both axes.
template <class Fail>
void fail_on_mesh(Fail fail) {
  run_mpi_mesh({.data = 2, .tensor = mesh::rest}, [&](MeshRanks<MpiCommunicator>& ranks) {
    for (int step = 0; step < 2; ++step) {
      if (step == 1 && ranks.rank() == ranks.size() - 1) fail(ranks);
      sum_along(ranks, MeshAxis::tensor);
      sum_along(ranks, MeshAxis::data);
    }
    ranks.barrier();
    std::printf("a rank went on\n");
  });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "throw") fail_on_last([](MpiCommunicator&) { throw shape_error("the cause"); });
  if (mode == "memory") fail_on_last([](MpiCommunicator&) { throw std::bad_alloc(); });
  if (mode == "stray") fail_on_last([](MpiCommunicator&) { throw 42; });
  if (mode == "leave") fail_on_last([](MpiCommunicator&) {});
  if (mode == "stop") fail_on_last(stop);
  if (mode == "stop_local") fail_on_last(stop, {.checks = CheckLevel::local});
  if (mode == "longer") run_mpi_ranks(receive_longer_block, {.checks = CheckLevel::local});
  if (mode == "receive") fail_on_last(receive);
  if (mode == "groups") enter_groups_in_another_order();
  if (mode == "differ") run_mpi_ranks(make_different_calls, {.checks = CheckLevel::local});
  if (mode == "all") run_mpi_ranks(report);
  if (mode == "told") return step_until_told(argv[2]);
  if (mode == "ranks") run_mpi_ranks(std::atoi(argv[2]), report);
  if (mode == "mesh") run_mpi_mesh(choose_mesh(argc > 2 ? argv[2] : ""), report_mesh);
  if (mode == "mesh_throw")
    fail_on_mesh([](MeshRanks<MpiCommunicator>&) { throw shape_error("the cause"); });
  if (mode == "mesh_axis")
    fail_on_mesh([](MeshRanks<MpiCommunicator>& ranks) { sum_along(ranks, MeshAxis::data); });
  return 0;
}

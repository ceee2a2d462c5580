// What happens to a job, for launch.sh: `launch throw|memory|stray|leave|all|ranks N`.

#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardwise/comm/mpi_ranks.hpp"

using namespace shardwise;

namespace {

/// The last rank fails; the others wait for it in a sum that it will never join.
template <class Fail>
void fail_on_last(Fail fail) {
  run_mpi_ranks([&](MpiCommunicator& ranks) {
    std::vector<float> data(100000, 1);
    ranks.all_reduce<float>(data, data);
    if (ranks.rank() == ranks.size() - 1) return fail();
    ranks.all_reduce<float>(data, data);
    std::printf("a rank went on\n");
  });
}

// begin: function
void report(MpiCommunicator& ranks) {
  std::vector<float> one{1};
  ranks.all_reduce<float>(one, one);
  if (ranks.rank() == 0)
    std::printf("%d ranks, sum %g\n", ranks.size(), static_cast<double>(one[0]));
}
// end: function

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "throw") fail_on_last([] { throw shape_error("the cause"); });
  if (mode == "memory") fail_on_last([] { throw std::bad_alloc(); });
  if (mode == "stray") fail_on_last([] { throw 42; });
  if (mode == "leave") fail_on_last([] {});
  if (mode == "all") run_mpi_ranks(report);
  if (mode == "ranks") run_mpi_ranks(std::atoi(argv[2]), report);
  return 0;
}

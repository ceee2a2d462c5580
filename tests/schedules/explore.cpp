// schedules COUNT [FIRST]: random programs of thread ranks, each in one random schedule. With each
// fourth seed comes one of threads whose objects a watchdog polls, or of ranks on devices.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "schedules/device.hpp"
#include "schedules/program.hpp"
#include "schedules/simulator.hpp"
#include "schedules/watched.hpp"

namespace schedules {

enum class End { lost, finished, told, at_fault, wrong };

/// What came of one rank.
struct Outcome {
  End end = End::lost;
  std::string text;  ///< of the error that it was told
};

template <class C, class Place>
void run_rank(const Program& p, C& world, Place& place, Outcome& outcome) {
  try {
    run(p, world, place);
    outcome.end = End::finished;
  } catch (const Left&) {
    outcome.end = End::at_fault;
  } catch (const WrongResult&) {
    outcome.end = End::wrong;
  } catch (const Planted&) {
    outcome.end = End::at_fault;
    throw;
  } catch (const shardwise::error& e) {
    outcome = {End::told, e.what()};
    throw;
  }
}

/// Empty if the program came to the end that its fault asks for.
std::string complaint(const Program& p, const std::vector<Outcome>& outcomes) {
  const auto count = [&](End end) {
    return std::count_if(outcomes.begin(), outcomes.end(),
                         [=](const Outcome& outcome) { return outcome.end == end; });
  };
  if (count(End::wrong) != 0) return "a wrong result";
  if (count(End::lost) != 0) return "a rank without an end";
  const auto finished = count(End::finished);
  if (finished != 0 && finished != p.ranks) return "not every rank was told";
  if (p.fault == Fault::none && finished == 0) return "an error without a fault";
  const bool may_finish = p.fault == Fault::none || p.fault == Fault::differs;
  if (!may_finish && finished != 0) return "a fault that no rank noticed";
  return {};
}

bool watched_passes(std::uint64_t seed, long& points) {
  sim::scheduler.begin(seed);
  sim::scheduler.let_time_pass();  // a watchdog polls once in a period
  const std::string wrong = watch(seed);
  points += sim::scheduler.points();
  if (!wrong.empty())
    std::printf("seed %llu, watched: %s\n", static_cast<unsigned long long>(seed), wrong.c_str());
  return wrong.empty();
}

/// Runs the program of a seed by run_ranks(program, outcome of each rank).
template <class RunRanks>
bool passes(std::uint64_t seed, const char* kind, long& points, RunRanks run_ranks) {
  const Program p = random_program(seed);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(p.ranks));
  sim::scheduler.begin(seed);
  if (p.fault == Fault::stays_away) sim::scheduler.let_time_pass();
  try {
    run_ranks(p, outcomes);
  } catch (const shardwise::error&) {  // each rank's own is in `outcomes`
  }
  points += sim::scheduler.points();
  const std::string wrong = complaint(p, outcomes);
  if (wrong.empty()) return true;
  std::printf("seed %llu%s, fault %s of rank %d of %d in step %d: %s\n",
              static_cast<unsigned long long>(seed), kind, fault_names[static_cast<int>(p.fault)],
              p.culprit, p.ranks, p.moment, wrong.c_str());
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank)
    std::printf("  rank %zu: end %d %s\n", rank, static_cast<int>(outcomes[rank].end),
                outcomes[rank].text.c_str());
  return false;
}

void run_on_host(const Program& p, std::vector<Outcome>& outcomes) {
  OnHost host;
  shardwise::run_ranks(p.ranks,
                       [&](shardwise::ThreadCommunicator& world) {
                         run_rank(p, world, host, outcomes[static_cast<std::size_t>(world.rank())]);
                       },
                       {timeout});
}

void run_on_devices(const Program& p, std::vector<Outcome>& outcomes) {
  std::deque<SimulatedDevice> devices(static_cast<std::size_t>(p.ranks));
  shardwise::run_ranks(p.ranks,
                       [&](shardwise::ThreadCommunicator& threads) {
                         const auto rank = static_cast<std::size_t>(threads.rank());
                         shardwise::DeviceThreadCommunicator world(threads, devices[rank]);
                         run_rank(p, world, devices[rank], outcomes[rank]);
                       },
                       {timeout});
}

}  // namespace schedules

/// Of 40,000 the one that finds ranks which arrive although a peer has stopped waiting for them.
constexpr std::uint64_t rare = 39'129;

int main(int argc, char** argv) {
  const std::uint64_t count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20'000;
  const std::uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  long points = 0;
  const auto on_host_passes = [&](std::uint64_t seed) {
    return schedules::passes(seed, "", points, schedules::run_on_host);
  };
  if (!on_host_passes(rare)) return 1;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    if (!on_host_passes(seed)) return 1;
    if (seed % 4 == 0 && !schedules::watched_passes(seed, points)) return 1;
    if (seed / 6 % 4 == 2 &&
        !schedules::passes(seed, ", devices", points, schedules::run_on_devices))
      return 1;
  }
  std::printf("%llu schedules without a complaint, %ld scheduling points\n",
              static_cast<unsigned long long>(count + 1), points);
}

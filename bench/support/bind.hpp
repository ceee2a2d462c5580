#pragma once
// Threads that stay where they are, as mpiexec has it for its processes. Unbound, two ranks that
// wait for each other in turn may come to share a core on a busy machine, and stay there: a small
// all-reduce then takes a hundred times as long.

#include <sched.h>

#include <cstddef>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace bench {

/// The CPUs that the calling thread may use: one of each core or, with `all`, each of them.
inline std::vector<int> usable_cpus(bool all) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  std::vector<int> cpus;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string core;
    if (!std::getline(file, core)) core = std::to_string(cpu);  // a machine that does not tell
    if (cores.insert(core).second || all) cpus.push_back(cpu);
  }
  return cpus;
}

/// Binds the calling thread to a core of its own, or to a CPU if there are fewer cores than ranks.
/// Leaves it as it is if there are fewer CPUs too.
inline void bind(int rank, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<int> cpus = usable_cpus(false);
  if (cpus.size() < count) cpus = usable_cpus(true);
  if (cpus.size() < count) return;
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(static_cast<std::size_t>(cpus[static_cast<std::size_t>(rank)]), &own);
  sched_setaffinity(0, sizeof own, &own);
}

}  // namespace bench

#pragma once
// Runs a program of trials on thread ranks.

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/comm/thread_ranks.hpp"
#include "trials/interpreter.hpp"
#include "trials/judge.hpp"

namespace trials {

/// Nothing waits so long but for a rank that never comes.
constexpr std::chrono::seconds hang{60};

/// Returns whether an error left run_ranks. Calls report(rank, outcome) for each rank, on its
/// thread. `Setting` calls f(communicator) on a rank, and has the Training of that communicator.
template <class Setting, class Report>
bool run(const Program& p, std::chrono::milliseconds patience, const std::filesystem::path& folder,
         const Report& report) {
  try {
    shardwise::run_ranks(p.ranks,
                         [&](shardwise::ThreadCommunicator& threads) {
                           Setting::call(threads, [&](auto& world) {
                             run_rank<typename Setting::Training>(
                                 p, world, folder, [&](Outcome outcome) {
                                   report(threads.rank(), std::move(outcome));
                                 });
                           });
                         },
                         {patience});
    return false;
  } catch (const shardwise::error&) {
    return true;
  }
}

/// For faults that do not end the process, as a rank that never comes does.
template <class Setting>
Ending run_here(const Program& p, const std::filesystem::path& folder) {
  Ending ending{.outcomes = std::vector<Outcome>(static_cast<std::size_t>(p.ranks))};
  ending.failed = run<Setting>(p, hang, folder, [&](int rank, Outcome outcome) {
    ending.outcomes[static_cast<std::size_t>(rank)] = std::move(outcome);
  });
  for (const Outcome& outcome : ending.outcomes)
    if (outcome.text.find("has waited") != std::string::npos) ending.in_time = false;
  return ending;
}

}  // namespace trials

#pragma once
// Prints what a model will send, and compares it with what it has sent.

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/testing/calls.hpp"

namespace example {

inline void print_collectives(const char* when, const shardwise::CollectiveList& list) {
  std::printf("  %-9s", when);
  if (list.empty()) std::printf(" nothing");
  for (const auto& entry : list) std::printf(" %s", to_string(entry).c_str());
  std::printf("\n");
}

/// One line for each part of a step: "forward   all_reduce(640 x float32)".
inline void print_plan(const shardwise::Plan& plan) {
  std::printf("one step on %d rank(s) sends %zu bytes in all:\n", plan.sizes.size(),
              plan.bytes_sent());
  print_collectives("forward", plan.forward);
  print_collectives("loss", plan.loss);
  print_collectives("backward", plan.backward);
  print_collectives("settle", plan.settle);
  if (!plan.update.empty()) print_collectives("update", plan.update);
}

/// Compares what all ranks pass into the collectives of one step, as planned and as counted, and
/// with `prints` prints both. A collective of `ranks`, which take memory of the host; `counting`
/// has counted that step on this rank.
/// throws   std::runtime_error, on every rank, if the two differ
template <shardwise::Communicator C, class Inner>
void compare_with_plan(const shardwise::Plan& plan, C& ranks,
                       const shardwise::CountingCommunicator<Inner>& counting, bool prints) {
  std::vector<shardwise::Collective> entries;
  for (const auto* part : {&plan.forward, &plan.loss, &plan.backward, &plan.settle, &plan.finish}) {
    entries.insert(entries.end(), part->begin(), part->end());
  }
  const auto counted = shardwise::counted_calls(ranks, counting.log());
  std::vector<shardwise::CountedCall> planned;
  planned.reserve(entries.size());
  for (const auto& entry : entries)
    planned.push_back(shardwise::planned_call<Inner>(entry, plan.sizes.tensor));
  const std::size_t lines =
      prints && ranks.rank() == 0 ? std::min(entries.size(), counted.size()) : 0;
  for (std::size_t i = 0; i < lines; ++i) {
    std::printf("  %-33s planned %9zu elements, %9zu bytes   counted %9zu\n",
                to_string(entries[i]).c_str(), planned[i].elements,
                planned[i].elements * shardwise::size_of(planned[i].dtype), counted[i].elements);
  }
  const std::string wrong = shardwise::difference_from_plan("one step", planned, counted);
  if (!wrong.empty()) throw std::runtime_error("a step sent other than planned: " + wrong);
}

}  // namespace example

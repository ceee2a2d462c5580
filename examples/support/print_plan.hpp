#pragma once
// Shows what a model will send, before it sends anything, and what it has sent beside it.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/reads_peers.hpp"
#include "shardwise/model/plan.hpp"

namespace example {

inline void print_collectives(const char* when, const shardwise::collectives& list) {
  std::printf("  %-9s", when);
  if (list.empty()) std::printf(" nothing");
  for (const auto& entry : list) std::printf(" %s", to_string(entry).c_str());
  std::printf("\n");
}

/// One line for each part of a step: "forward   all_reduce(640 x float32)".
inline void print_plan(const shardwise::Plan& plan) {
  std::printf("one step on %d rank(s) sends %zu bytes in all:\n", plan.ranks, plan.bytes_sent());
  print_collectives("forward", plan.forward);
  print_collectives("loss", plan.loss);
  print_collectives("backward", plan.backward);
  print_collectives("settle", plan.settle);
}

/// What a planned collective is called on ranks of the type C, and what all of them pass in: where
/// ranks cannot read each other's memory, halos travel by all-to-all, each rank's own block too.
template <shardwise::Communicator C>
shardwise::CountedCall call_of(const shardwise::Collective& planned, int ranks) {
  using shardwise::Operation;
  const bool moves_halos =
      planned.operation == Operation::halo_exchange || planned.operation == Operation::halo_sum;
  if (!shardwise::ReadsPeers<C> && moves_halos) {
    const std::size_t of_unit = planned.halo.units == 0 ? 0 : planned.elements / planned.halo.units;
    return {Operation::all_to_all, planned.dtype, planned.halo.held(ranks) * of_unit};
  }
  return {planned.operation, planned.dtype, planned.elements_passed_in(ranks)};
}

/// What all ranks pass into the collectives of one step, as planned and as counted. A collective;
/// `log` is what a CountingCommunicator above `ranks` saw of that step on this rank.
/// throws   std::runtime_error, on every rank, if the two differ
template <shardwise::Communicator C>
void print_plan_beside_log(const shardwise::Plan& plan, C& ranks,
                           std::span<const shardwise::CountedCall> log) {
  std::vector<std::int64_t> counted;
  for (const auto& call : log) counted.push_back(static_cast<std::int64_t>(call.elements));
  ranks.all_reduce(std::span<const std::int64_t>(counted), std::span(counted));
  std::vector<shardwise::Collective> planned;
  for (const auto* part : {&plan.forward, &plan.loss, &plan.backward, &plan.settle, &plan.finish}) {
    planned.insert(planned.end(), part->begin(), part->end());
  }
  bool equal = planned.size() == log.size();
  for (std::size_t i = 0; equal && i < log.size(); ++i) {
    const shardwise::CountedCall call = call_of<C>(planned[i], plan.ranks);
    equal = call == shardwise::CountedCall{log[i].operation, log[i].dtype,
                                           static_cast<std::size_t>(counted[i])};
    if (ranks.rank() == 0) {
      std::printf("  %-33s planned %9zu elements, %9zu bytes   counted %9zu\n",
                  to_string(planned[i]).c_str(), call.elements,
                  call.elements * shardwise::size_of(call.dtype),
                  static_cast<std::size_t>(counted[i]));
    }
  }
  if (!equal) throw std::runtime_error("a step sent something else than was planned");
}

}  // namespace example

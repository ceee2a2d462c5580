#pragma once
// Shows what a model will send, before it sends anything.

#include <cstdio>

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

}  // namespace example

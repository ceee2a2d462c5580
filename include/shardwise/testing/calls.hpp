#pragma once
// Compares the calls of a model with its plan.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/reads_peers.hpp"
#include "shardwise/model/collective_list.hpp"

namespace shardwise {

/// The call of a planned collective on a mesh of ranks of the type C, and the elements that all of
/// them pass in. Ranks that cannot read each other's memory send halos by all-to-all, which
/// includes each rank's own block.
template <Communicator C>
CountedCall planned_call(const Collective& planned, const mesh& sizes) {
  const bool moves_halos =
      planned.operation == Operation::halo_exchange || planned.operation == Operation::halo_sum;
  if (!ReadsPeers<C> && moves_halos) {
    const std::size_t of_unit = planned.halo.units == 0 ? 0 : planned.elements / planned.halo.units;
    return {Operation::all_to_all, planned.dtype,
            planned.halo.held(sizes[planned.axis]) * of_unit * planned.copies(sizes)};
  }
  return {planned.operation, planned.dtype, planned.elements_passed_in(sizes)};
}

/// The same on ranks of one axis.
template <Communicator C>
CountedCall planned_call(const Collective& planned, int ranks) {
  return planned_call<C>(planned, mesh{.tensor = ranks});
}

/// The same for a list of collectives.
template <Communicator C>
std::vector<CountedCall> planned_calls(const CollectiveList& planned, int ranks) {
  std::vector<CountedCall> calls;
  for (const Collective& one : planned) calls.push_back(planned_call<C>(one, ranks));
  return calls;
}

/// The same for those along one axis of a mesh.
template <Communicator C>
std::vector<CountedCall> planned_calls(const CollectiveList& planned, const mesh& sizes,
                                       MeshAxis axis) {
  std::vector<CountedCall> calls;
  for (const Collective& one : planned)
    if (one.axis == axis) calls.push_back(planned_call<C>(one, sizes));
  return calls;
}

/// The calls of `log`, each with the elements that all ranks passed in. A collective; the logs of
/// all ranks must have the same number of calls.
/// throws   the communicator's errors if they have not
template <Communicator C>
std::vector<CountedCall> counted_calls(C& ranks, std::span<const CountedCall> log) {
  std::vector<std::int64_t> elements;
  for (const CountedCall& call : log) elements.push_back(static_cast<std::int64_t>(call.elements));
  ranks.all_reduce(std::span<const std::int64_t>(elements), std::span(elements));
  std::vector<CountedCall> calls(log.begin(), log.end());
  for (std::size_t i = 0; i < calls.size(); ++i)
    calls[i].elements = static_cast<std::size_t>(elements[i]);
  return calls;
}

/// "all_reduce(640 x float32)".
inline std::string to_string(const CountedCall& call) {
  return to_string(Collective{call.operation, call.elements, call.dtype});
}

/// The first difference between the calls and the plan, as a sentence; empty if there is none.
/// `part` names the part of the step.
inline std::string difference_from_plan(std::string_view part, std::span<const CountedCall> planned,
                                        std::span<const CountedCall> counted) {
  const auto call = [](std::span<const CountedCall> calls, std::size_t i) {
    return i < calls.size() ? to_string(calls[i]) : std::string("nothing more");
  };
  const std::size_t longest = std::max(planned.size(), counted.size());
  for (std::size_t i = 0; i < longest; ++i) {
    if (i < planned.size() && i < counted.size() && planned[i] == counted[i]) continue;
    return std::string(part) + ": collective " + std::to_string(i) + " is " + call(counted, i) +
           ", and planned is " + call(planned, i) + " (elements that all ranks pass in)";
  }
  return {};
}

}  // namespace shardwise

#pragma once
// How a group of NCCL is made: from an id, by ranks that have a communicator, at the address of a
// launcher, or from a communicator of the caller.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/detail/chosen_checks.hpp"
#include "shardwise/comm/detail/comm_id_variable.hpp"
#include "shardwise/comm/detail/nccl_agreement.hpp"
#include "shardwise/comm/detail/nccl_group.hpp"
#include "shardwise/comm/detail/nccl_library.hpp"
#include "shardwise/comm/detail/rank_failure.hpp"
#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/comm/nccl_options.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail::nccl {

/// Ranks whose collectives take memory of the host.
template <class C>
concept HostRanks = Communicator<C> && !TakesDeviceMemory<C>;

/// The ranks of a group that was connected without an exchange before it exchange their levels of
/// checks, see agreed_checks(). All of them call.
inline void agree_on_checks(NcclGroup& group, CheckLevel program) {
  const std::vector<ChosenChecks> all =
      gathered(group, Call{Operation::split}, ChosenChecks(program));
  agreed_checks(all.size(), [&](std::size_t r) { return all[r]; });
}

/// All ranks with this id call.
inline std::unique_ptr<NcclGroup> connect(const ncclUniqueId& id, int rank, int size,
                                          const NcclOptions& options) try {
  auto group = std::make_unique<NcclGroup>(
      NcclGroup::Settings{.device = choose_device(options.device),
                          .stream = options.stream,
                          .timeout = options.timeout,
                          .checks = ChosenChecks(options.checks).level});
  group->connect(rank, size, id);
  return group;
} catch (...) {
  rethrow_with_rank(rank);
}

/// What a rank tells the others before NCCL connects them.
struct Greeting {
  ncclUniqueId id{};                ///< that of rank 0 is used
  ChosenChecks checks{};            ///< of the rank
  std::array<char, 256> problem{};  ///< why the rank cannot take part; empty if it can
};

template <HostRanks C>
std::vector<Greeting> exchange(C& ranks, const Greeting& mine) {
  const auto size = static_cast<std::size_t>(ranks.size());
  std::vector<Greeting> all(size);
  const std::vector<std::size_t> counts(size, sizeof mine);
  ranks.all_gather(std::span(reinterpret_cast<const std::uint8_t*>(&mine), sizeof mine),
                   std::span(reinterpret_cast<std::uint8_t*>(all.data()), size * sizeof mine),
                   counts);
  return all;
}

/// A rank that cannot take part tells the others before it throws.
template <HostRanks C>
std::unique_ptr<NcclGroup> connect(C& ranks, NcclOptions options) {
  Greeting mine{.checks = ChosenChecks(options.checks)};
  try {
    options.device = choose_device(options.device);
    if (ranks.rank() == 0) mine.id = new_id();
  } catch (const error& e) {
    std::string_view(e.what()).copy(mine.problem.data(), mine.problem.size() - 1);
    exchange(ranks, mine);
    rethrow_with_rank(ranks.rank());
  }
  const std::vector<Greeting> all = exchange(ranks, mine);
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r].problem[0] != '\0')
      throw peer_error({"rank ", r, " cannot take part: ", all[r].problem.data()});
  agreed_checks(all.size(), [&](std::size_t r) { return all[r].checks; });
  return connect(all[0].id, ranks.rank(), ranks.size(), options);
}

/// A job of one process needs no address.
inline std::unique_ptr<NcclGroup> connect(const LaunchEnvironment& launch,
                                          const NcclOptions& options) {
  if (launch.size == 1) return connect(new_id(), launch.rank, launch.size, options);
  const CommIdVariable variable(launch);
  try {
    return connect(new_id(), launch.rank, launch.size, options);
  } catch (error& e) {
    e.add_place(variable.text());
    throw;
  }
}

inline std::unique_ptr<NcclGroup> adopt(ncclComm_t comm, cudaStream_t stream,
                                        std::chrono::milliseconds timeout) {
  NcclGroup::Settings settings{.stream = stream,
                               .timeout = timeout,
                               .owns = false,
                               .checks = ChosenChecks(CheckLevel::local).level};
  if (comm == nullptr)
    throw argument_error("NcclCommunicator: the ncclComm_t is null; give one that was made");
  check(ncclCommCuDevice(comm, &settings.device), "ncclCommCuDevice");
  auto group = std::make_unique<NcclGroup>(settings);
  group->adopt(comm);
  return group;
}

}  // namespace shardwise::detail::nccl

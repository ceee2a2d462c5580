#pragma once
// A mesh of ranks as a text: which ranks form its groups along `tensor`, and on which machines.

#include <unistd.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "shardwise/comm/gathered.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/mesh.hpp"

namespace shardwise {

namespace detail {

/// The name of a machine, cut off if it is longer.
using MachineName = std::array<char, 64>;

/// What the communicator says (`ranks.machine()`), or else the system.
template <class C>
std::string machine_of(const C& ranks) {
  if constexpr (requires { ranks.machine(); }) {
    return ranks.machine();
  } else {
    std::array<char, 256> host{};  // of 64 characters on Linux, and of 255 in POSIX
    gethostname(host.data(), host.size() - 1);
    return host.data();
  }
}

/// As describe(); `machines` has the name of the machine of each rank.
std::string describe_mesh(const mesh& sizes, const MeshOrder& order,
                          const std::vector<MachineName>& machines);

}  // namespace detail

/// The mesh as a text, the same on all ranks: its sizes, and a line for each group along `tensor`
/// with its machines and the numbers of its ranks in the job. It ends with a warning if such groups
/// span machines. Ranks with the same name of a machine are on one machine. A collective.
///
///     mesh data=2,tensor=2: 4 ranks on 2 machines
///     data 0: node1 0 1
///     data 1: node2 2 3
///
/// sends  64 bytes of each rank to each (see `gathered`): the beginning of the name
template <Communicator C>
std::string describe(MeshRanks<C>& ranks, std::string_view machine) {
  detail::MachineName mine{};
  machine.copy(mine.data(), mine.size() - 1);
  return detail::describe_mesh(ranks.sizes(), ranks.order(), gathered(ranks, mine));
}

/// The same, with the name that the system gives to the machine of this rank.
template <Communicator C>
std::string describe(MeshRanks<C>& ranks) {
  return describe(ranks, detail::machine_of(ranks));
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

#include "shardwise/core/sentence.hpp"

namespace shardwise::detail {

/// Names of machines, each once, in the order in which they were added, with the ranks on each.
struct Machines {
  std::vector<std::string_view> names;
  std::vector<std::string> ranks;

  void add(std::string_view name, int rank) {
    std::size_t i = 0;
    while (i < names.size() && names[i] != name) ++i;
    if (i == names.size()) {
      names.push_back(name);
      ranks.emplace_back();
    }
    append(ranks[i], {" ", rank});
  }
};

/// "data 1, context 0": the places along all axes of several ranks but `tensor`; "all ranks" if
/// there is no such axis.
inline std::string place_text(const MeshPlace& place) {
  std::string text;
  for (const MeshAxis axis : mesh_axes)
    if (axis != MeshAxis::tensor && place[axis].size > 1)
      append(text, {text.empty() ? "" : ", ", name(axis), " ", place[axis].rank});
  return text.empty() ? "all ranks" : text;
}

SHARDWISE_INLINE std::string describe_mesh(const mesh& sizes, const MeshOrder& order,
                                           const std::vector<MachineName>& machines) {
  Machines all;
  std::string lines;
  int spanning = 0;
  const int groups = sizes.size() / sizes.tensor;
  for (int group = 0; group < groups; ++group) {
    MeshPlace place = place_in(sizes, group * sizes.tensor);
    Machines mine;
    for (int& t = place[MeshAxis::tensor].rank; t < sizes.tensor; ++t) {
      const int rank = rank_at(place, order);
      const std::string_view machine = machines[static_cast<std::size_t>(rank)].data();
      all.add(machine, rank);
      mine.add(machine, rank);
    }
    lines += place_text(place) + ": ";
    for (std::size_t i = 0; i < mine.names.size(); ++i)
      append(lines, {i == 0 ? "" : ", ", mine.names[i], mine.ranks[i]});
    lines += '\n';
    spanning += mine.names.size() > 1 ? 1 : 0;
  }
  std::string text =
      sentence({"mesh ", sizes, ": ", sizes.size(), sizes.size() == 1 ? " rank" : " ranks", " on ",
                all.names.size(), all.names.size() == 1 ? " machine\n" : " machines\n", lines});
  if (spanning > 0)
    append(text, {"warning: ", spanning, " of ", groups, groups == 1 ? " group" : " groups",
                  " along tensor ", spanning == 1 ? "spans" : "span",
                  " machines, so its sums of every layer cross the network. Start a multiple "
                  "of ",
                  sizes.tensor,
                  " ranks on each machine, one machine after another, and "
                  "let the order of ranks end with tensor\n"});
  return text;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

#pragma once
// Tests on ranks that are the processes of an MPI job. Every process runs every test.

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string_view>
#include <type_traits>
#include <vector>

#include "shardwise/comm/mpi_ranks.hpp"
#include "shardwise/core/partition.hpp"
#include "support/skipped.hpp"

namespace testing {

using Ranks = shardwise::MpiCommunicator;

/// All processes of the job, and the groups of the first few of them that tests have asked for. One
/// object, made and ended by main().
class World {
 public:
  World() { current() = this; }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() { current() = nullptr; }

  static World& get() { return *current(); }

  int size() const { return all_.size(); }
  int rank() const { return all_.rank(); }
  int skipped() const { return skipped_; }

  /// Whether the job has fewer processes than that: what needs them is left out, and counted.
  bool lacks(int ranks) {
    if (ranks <= size()) return false;
    ++skipped_;
    case_leaves_out = true;
    return true;
  }

  /// On all processes, f on the first `ranks` of them. A group of one is each process alone, so
  /// that all of them know what it did.
  template <class F>
  void run(int ranks, F& f) {
    if (lacks(ranks)) return;
    const bool inside = ranks == 1 || rank() < ranks;
    auto group = groups_.find(ranks);
    if (group == groups_.end())
      group = groups_.emplace(ranks, all_.split(ranks == 1 ? rank() : inside ? 0 : 1, 0)).first;
    if (!inside) return;
    try {
      f(group->second);
    } catch (...) {
      shardwise::detail::mpi::abort_job();  // the others may wait for this one
    }
  }

 private:
  static World*& current() {
    static World* world = nullptr;
    return world;
  }

  /// As the environment asks: SHARDWISE_TEST_CHECKS=local, SHARDWISE_TEST_PIECE=<elements>.
  static shardwise::MpiOptions options() {
    shardwise::MpiOptions options;
    const char* const checks = std::getenv("SHARDWISE_TEST_CHECKS");
    const char* const piece = std::getenv("SHARDWISE_TEST_PIECE");
    if (checks != nullptr && std::string_view(checks) == "local")
      options.checks = shardwise::CheckLevel::local;
    if (piece != nullptr) options.largest_piece = std::strtoul(piece, nullptr, 10);
    return options;
  }

  Ranks all_{MPI_COMM_WORLD, options()};
  std::map<int, Ranks> groups_;
  int skipped_ = 0;
};

template <class F>
void run_on_ranks(int ranks, F&& f) {
  World::get().run(ranks, f);
}

/// One rank, and as many as there are processes: what these do, all processes are told.
inline std::vector<int> rank_counts(std::initializer_list<int> counts) {
  std::vector<int> possible;
  std::copy_if(counts.begin(), counts.end(), std::back_inserter(possible),
               [](int count) { return count == 1 || count == World::get().size(); });
  return possible;
}

inline int any_ranks(int) { return World::get().size(); }

/// Through MPI itself and not through what is tested. The group is that of all processes, or of
/// one.
template <class T, class F>
void tell(shardwise::Place place, const std::vector<T>& values, F&& f) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (place.size == 1) return f(0, values);
  std::vector<int> bytes(static_cast<std::size_t>(place.size));
  const int mine = static_cast<int>(values.size() * sizeof(T));
  MPI_Allgather(&mine, 1, MPI_INT, bytes.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::vector<int> offsets(bytes.size() + 1);
  for (std::size_t r = 0; r < bytes.size(); ++r) offsets[r + 1] = offsets[r] + bytes[r];
  std::vector<T> all(static_cast<std::size_t>(offsets.back()) / sizeof(T));
  MPI_Allgatherv(values.data(), mine, MPI_BYTE, all.data(), bytes.data(), offsets.data(), MPI_BYTE,
                 MPI_COMM_WORLD);
  for (std::size_t r = 0; r < bytes.size(); ++r) {
    const auto first = all.begin() + offsets[r] / static_cast<int>(sizeof(T));
    f(static_cast<int>(r), std::vector<T>(first, first + bytes[r] / static_cast<int>(sizeof(T))));
  }
}

}  // namespace testing

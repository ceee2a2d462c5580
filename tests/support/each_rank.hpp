#pragma once
// What a function gives on each of the ranks that it runs on.

#include <doctest/doctest.h>

#include <cstddef>
#include <type_traits>
#include <vector>

#include "shardwise/comm/thread_mesh.hpp"
#include "shardwise/comm/thread_ranks.hpp"

namespace testing {

using ThreadMesh = shardwise::MeshRanks<shardwise::ThreadCommunicator>;

/// f(ranks) of each of `size` ranks.
template <class F>
auto on_each_rank(int size, F&& f) {
  using Given = std::invoke_result_t<F&, shardwise::ThreadCommunicator&>;
  static_assert(!std::is_same_v<Given, bool>, "ranks cannot write bits of one word");
  std::vector<Given> given(static_cast<std::size_t>(size));
  shardwise::run_ranks(size, [&](shardwise::ThreadCommunicator& ranks) {
    given[static_cast<std::size_t>(ranks.rank())] = f(ranks);
  });
  return given;
}

/// The same on a mesh, where f is given its ThreadMesh.
template <class F>
auto on_each_rank(const shardwise::mesh& sizes, F&& f) {
  std::vector<std::invoke_result_t<F&, ThreadMesh&>> given(static_cast<std::size_t>(sizes.size()));
  shardwise::run_mesh(
      sizes, [&](ThreadMesh& ranks) { given[static_cast<std::size_t>(ranks.rank())] = f(ranks); });
  return given;
}

/// What all ranks have alike.
template <class T>
T alike(const std::vector<T>& of_ranks) {
  for (const T& one : of_ranks) CHECK(one == of_ranks.front());
  return of_ranks.front();
}

}  // namespace testing

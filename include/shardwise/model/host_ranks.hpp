#pragma once
// The ranks of a model, for a few numbers of the host.

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>

#include "shardwise/core/memory.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise {

namespace detail {

/// Ranks that can agree on numbers of the host: a communicator that takes such memory, or the
/// `HostRanks` of a model.
template <class R>
concept AgreeingRanks = requires(R& ranks, std::span<std::int32_t> numbers) {
  { ranks.rank() } -> std::same_as<int>;
  { ranks.size() } -> std::same_as<int>;
  ranks.all_reduce(std::span<const std::int32_t>(numbers), numbers, Reduction::min);
  ranks.broadcast(numbers, 0);
};

}  // namespace detail

/// The ranks of a model, for numbers of the host. If the model's communicator takes only device
/// memory, they are copied to the device and back.
template <class Context>
class HostRanks {
  using Ranks = typename Context::communicator;

 public:
  /// Of a model's `run()`, which must outlive it; for the model of one stage those of all stages.
  explicit HostRanks(Run<Context>& run) : HostRanks(run, run.ranks_of_all_stages()) {}
  /// Other ranks, of which those of the model are some. Both must outlive it.
  HostRanks(Run<Context>& run, Ranks& ranks) : run_(run), ranks_(ranks) {}

  ///@{
  /// As `Communicator` says.
  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }
  ///@}

  /// The place of this rank on the mesh.
  MeshPlace mesh_place() const requires(detail::MeshCommunicator<Ranks>) { return ranks_.place(); }

  /// out = in, reduced over the ranks.
  template <Element T>
  void all_reduce(std::span<const T> in, std::span<T> out, Reduction reduction) {
    if (in.data() != out.data()) std::copy(in.begin(), in.end(), out.begin());
    in_place(out, [&](std::span<T> there) {
      ranks_.all_reduce(std::span<const T>(there), there, reduction);
    });
  }

  /// The numbers of rank `root`, on every rank.
  template <Element T>
  void broadcast(std::span<T> numbers, int root) {
    in_place(numbers, [&](std::span<T> there) { ranks_.broadcast(there, root); });
  }

 private:
  /// Calls f with the numbers in memory that the communicator takes.
  template <class T, class F>
  void in_place(std::span<T> numbers, F&& f) {
    if constexpr (DeviceBackend<typename Context::backend>) {
      const Buffer memory = run_.pool.take(numbers.size_bytes());
      const std::span<T> there(static_cast<T*>(memory.data()), numbers.size());
      detail::to_device(run_.backend, numbers.data(), numbers.size(), there.data());
      f(there);
      detail::to_host(run_.backend, there.data(), numbers.size(), numbers.data());
    } else {
      f(numbers);
    }
  }

  Run<Context>& run_;
  Ranks& ranks_;
};

}  // namespace shardwise

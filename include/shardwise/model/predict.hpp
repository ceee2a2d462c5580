#pragma once
// How long the collectives of a plan take on links of known latency and bandwidth, for ranks that
// are processes of MPI.

#include <array>
#include <bit>
#include <cstddef>
#include <optional>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/detail/block_mismatch.hpp"
#include "shardwise/comm/detail/sum_tree.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/model/collective_list.hpp"
#include "shardwise/model/plan.hpp"

namespace shardwise {

/// The links between ranks: a message of n bytes takes `latency + n / bandwidth` seconds. They are
/// those of a platform's description, or of the times of a short and a long message (ping-pong).
struct Link {
  double latency = 0;    ///< in seconds, from the call of a rank to the memory of another
  double bandwidth = 1;  ///< in bytes a second, of all that a rank sends at a time
};

/// The links along each axis of a mesh, and whether ranks compare their calls
/// (comm/check_level.hpp).
struct StepCost {
  std::array<Link, mesh_axes.size()> along;  ///< by MeshAxis
  bool compares_calls = true;                ///< a round of headers ahead of each collective

  /// The same links along all axes.
  static constexpr StepCost on(const Link& link) {
    StepCost cost;
    for (Link& one : cost.along) one = link;
    return cost;
  }
  ///@{
  /// Those along `axis`.
  constexpr Link& operator[](MeshAxis axis) { return along[static_cast<std::size_t>(axis)]; }
  constexpr const Link& operator[](MeshAxis axis) const {
    return along[static_cast<std::size_t>(axis)];
  }
  ///@}
};

/// What a rank waits for in a collective: latencies one after the other, and bytes that it sends.
/// Latencies of messages that it sends at the same time overlap.
struct CriticalPath {
  double latencies = 0;  ///< messages that wait for each other
  double bytes = 0;      ///< sent by one rank

  /// One after the other.
  constexpr CriticalPath& operator+=(const CriticalPath& other) {
    latencies += other.latencies;
    bytes += other.bytes;
    return *this;
  }
  /// In seconds.
  constexpr double on(const Link& link) const {
    return latencies * link.latency + bytes / link.bandwidth;
  }
};

namespace detail {

/// Of MpiCommunicator with P ranks (comm/detail/mpi_moves.hpp), n bytes of the whole tensor of the
/// group. Up to 16 ranks each sends to each at the same time, at one latency. Above, with 2^k the
/// largest power of two that is not above P, as Thakur, Rabenseifner and Gropp (2005) count:
///
///   recursive halving (reduce_scatter, 4.4)  k latencies, n (2^k - 1) / 2^k bytes of accumulate_t
///     with P above 2^k                       and 2 latencies, n + n / P bytes, of shared places
///   Bruck (all_gather, 4.1)                  ceil(log2 P) latencies, n (P - 1) / P bytes
class MpiPaths {
 public:
  constexpr MpiPaths(int ranks, Dtype dtype)
      : ranks_(ranks),
        bytes_(static_cast<double>(size_of(dtype))),
        sum_bytes_(static_cast<double>(size_of(accumulated(dtype)))) {}

  constexpr CriticalPath header() const {
    return is_direct() ? CriticalPath{1, 48 * others()} : CriticalPath{rounds(), 48 * rounds()};
  }
  constexpr CriticalPath all_gather(double elements) const {
    return {is_direct() ? 1 : rounds(), elements * bytes_ * others() / ranks_};
  }
  constexpr CriticalPath reduce_scatter(double elements) const {
    if (is_direct()) return {1, elements * bytes_ * others() / ranks_};
    const double places = SumTree(ranks_).places();
    const double sums = elements * sum_bytes_;
    CriticalPath path{rounds(), sums * (places - 1) / places};
    if (places < ranks_) path += {1, sums + sums / ranks_};  // one round less of halving, two more
    return path;
  }
  constexpr CriticalPath all_reduce(double elements) const {
    if (is_direct() && elements * bytes_ <= gathered_bytes)
      return {1, elements * bytes_ * others()};
    CriticalPath path = reduce_scatter(elements);
    path += all_gather(elements);
    return path;
  }
  /// Each rank sends so many elements in all; with checks, before that, to each rank a count, and
  /// to all what it has found (comm/detail/mpi_block_agreement.hpp).
  constexpr CriticalPath all_to_all(double elements_of_rank, bool compares_counts) const {
    CriticalPath path{1, elements_of_rank * bytes_};
    if (!compares_counts) return path;
    path += {1, others() * sizeof(std::size_t)};
    constexpr std::size_t found = sizeof(std::optional<BlockMismatch>);
    path += MpiPaths(ranks_, Dtype::uint8).all_gather(static_cast<double>(found) * ranks_);
    return path;
  }

 private:
  constexpr bool is_direct() const { return ranks_ <= direct_ranks; }
  constexpr double others() const { return ranks_ - 1; }
  /// ceil(log2 P)
  constexpr double rounds() const { return std::bit_width(static_cast<unsigned>(ranks_ - 1)); }

  int ranks_;
  double bytes_;
  double sum_bytes_;
};

}  // namespace detail

/// The critical path of one collective, which each of its groups on a mesh of these sizes calls on
/// its part of the tensor at the same time. Nothing along an axis of one rank.
constexpr CriticalPath critical_path(const Collective& entry, const mesh& sizes,
                                     bool compares_calls = true) {
  const int ranks = sizes[entry.axis];
  if (ranks == 1) return {};
  auto elements = static_cast<double>(entry.elements);
  for (const MeshAxis axis : mesh_axes)
    if (axis != entry.axis && entry.split.has(axis)) elements /= sizes[axis];
  const detail::MpiPaths paths(ranks, entry.dtype);
  CriticalPath path;
  if (compares_calls) path += paths.header();
  switch (entry.operation) {
    case Operation::all_reduce:
      path += paths.all_reduce(elements);
      break;
    case Operation::reduce_scatter:
      path += paths.reduce_scatter(elements);
      break;
    case Operation::all_gather:
      path += paths.all_gather(elements);
      break;
    case Operation::halo_exchange:
    case Operation::halo_sum:
      elements *=
          static_cast<double>(entry.halo.beyond(ranks)) / static_cast<double>(entry.halo.units);
      path += paths.all_to_all(elements / ranks, compares_calls);
      break;
    default:  // all_to_all: a rank keeps its own part of its block
      path += paths.all_to_all(elements * (ranks - 1) / ranks / ranks, compares_calls);
  }
  return path;
}

/// The seconds that the collectives of a step take on the links, one after the other, as
/// MpiCommunicator makes them. Computation is not counted. A constant expression:
///
///     static_assert(predict(plan<Gpt, mesh{.data = 64, .tensor = 8}>(batch{512}), cost) < 0.1);
constexpr double predict(const Plan& plan, const StepCost& cost) {
  double seconds = 0;
  for (const CollectiveList* part :
       {&plan.forward, &plan.backward, &plan.settle, &plan.loss, &plan.finish, &plan.update})
    for (const Collective& entry : *part)
      seconds += critical_path(entry, plan.sizes, cost.compares_calls).on(cost[entry.axis]);
  return seconds;
}

}  // namespace shardwise

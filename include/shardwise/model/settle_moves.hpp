#pragma once
// How gradients are settled: the list of calls that a plan prints and ranks make.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "shardwise/comm/call.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/model/collective_list.hpp"
#include "shardwise/model/keep.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/parameter_layout.hpp"
#include "shardwise/model/sending.hpp"

namespace shardwise::detail {

/// What a rank along `data` has of the sums of some gradients over samples.
enum class HeldSums : std::uint8_t {
  summands,  ///< one summand of each
  share,     ///< those of its share, over the ranks along `data` at least
  whole      ///< all of them
};

///@{
/// What a rank has, with this Keep, of the gradients that it stores, and of those that it uses to
/// update parameters.
constexpr HeldSums stored_gradients(Keep keep, const mesh& sizes) {
  return cuts_gradients(keep) && sizes.data > 1 ? HeldSums::share : HeldSums::summands;
}
constexpr HeldSums used_gradients(Keep keep, const mesh& sizes) {
  return cuts_moments(keep) && sizes.data > 1 ? HeldSums::share : HeldSums::whole;
}
///@}

/// The share of neighbouring elements that the rank at `along` has.
constexpr Interval share_of(const Interval& all, Place along) {
  const Interval mine = block_of(all.size, along);
  return {all.offset + mine.offset, mine.size};
}

/// Some gradients of a group that are summed together.
struct SettleBucket {
  Interval cut;    ///< elements of the group; each rank along `data` has a share of these
  Interval piece;  ///< those in the bucket: elements of the group, or of each share
  bool of_each_share = false;  ///< whether they are those of each share, from its first one on

  /// Those in the share of the rank at `along`.
  constexpr Interval share(Place along) const {
    const Interval all = share_of(cut, along);
    return overlap(all, of_each_share ? Interval{all.offset + piece.offset, piece.size} : piece);
  }
  /// Those of so many ranks along `data` together.
  constexpr std::size_t size(int ranks) const {
    if (!of_each_share) return piece.size;
    std::size_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += share({rank, ranks}).size;
    return sum;
  }
};

/// A call that is made for each bucket.
struct SettleCall {
  Operation operation = Operation::all_reduce;
  MeshAxis axis = MeshAxis::tensor;  ///< `pipeline`: of ranks whose stages share parameters
  bool of_share = false;             ///< whether a rank sums only its share of the bucket
};

/// How the gradients of a group are settled: in buckets, each by these calls.
struct SettleMoves {
  HeldSums before = HeldSums::summands;  ///< what each rank along `data` has,
  HeldSums after = HeldSums::whole;      ///< and what it gets
  SettleCall calls[4];
  std::size_t size = 0;  ///< the number of calls

  constexpr SettleMoves() = default;
  constexpr SettleMoves(HeldSums has, HeldSums gets) : before(has), after(gets) {}

  constexpr const SettleCall* begin() const { return calls; }
  constexpr const SettleCall* end() const { return calls + size; }
  constexpr void add(const SettleCall& call) { calls[size++] = call; }
  /// Adds the call along `data` that makes `to` of `from`.
  constexpr void add_over_data(HeldSums from, HeldSums to, const mesh& sizes) {
    if (from == to || sizes.data == 1) return;
    add({from == HeldSums::share ? Operation::all_gather
         : to == HeldSums::share ? Operation::reduce_scatter
                                 : Operation::all_reduce,
         MeshAxis::data});
  }
  /// Whether ranks along `data` sum shares, and did not before.
  constexpr bool scatters() const { return calls[0].operation == Operation::reduce_scatter; }
  /// Whether ranks along `data` only give each other what they have.
  constexpr bool gathers() const { return before == HeldSums::share && after == HeldSums::whole; }

  /// Calls f(bucket) for each bucket of the rank at `along` in a group of so many gradients. A
  /// bucket has at most `sending.bucket_bytes` bytes, but at least one element of each share.
  template <class F>
  constexpr void for_each_bucket(std::size_t group, Place along, const Sending& sending,
                                 F&& f) const {
    const Interval all{0, group};
    const bool has_share = before == HeldSums::share;
    const bool by_shares = has_share || (after == HeldSums::share && !sending.sums_in_backward);
    const Place longest = has_share ? along : Place{0, along.size};
    const std::size_t end = by_shares ? share_of(all, longest).size : group;
    const int sent_shares = by_shares && !has_share ? along.size : 1;
    const std::size_t bytes = size_of(sending.gradients) * static_cast<std::size_t>(sent_shares);
    const std::size_t most = std::max<std::size_t>(1, sending.bucket_bytes / bytes);
    for (std::size_t first = 0; first < end; first += most) {
      const Interval piece{first, std::min(most, end - first)};
      f(SettleBucket{after == HeldSums::share ? all : piece, piece, by_shares});
    }
  }
};

/// Which gradients are settled: what each rank along `data` has of them before and after it, and
/// whether ranks that have other samples have other summands.
struct Settling {
  HeldSums before = HeldSums::summands;
  HeldSums after = HeldSums::whole;
  bool over_samples = true;
};

/// Along the axes that cut samples. A sum over several of them has the same bits in shares: it
/// adds in the same order.
constexpr SettleMoves moves_over_samples(const Settling& settling, const mesh& sizes,
                                         const Sending& sending) {
  SettleMoves moves(settling.before, settling.after);
  const bool over_others = sample_ranks(sizes) > sizes.data;
  const bool in_shares = settling.before == HeldSums::summands && sizes.data > 1 && over_others &&
                         sending.sums_in_shares;
  const HeldSums between = in_shares ? HeldSums::share : settling.after;
  moves.add_over_data(settling.before, between, sizes);
  for (const MeshAxis axis : share_axes)
    if (settling.over_samples && sizes[axis] > 1)
      moves.add({Operation::all_reduce, axis, between == HeldSums::share});
  moves.add_over_data(between, settling.after, sizes);
  return moves;
}

/// Of gradients that each rank along `data` holds so, over the ranks along another axis.
constexpr SettleMoves moves_along(MeshAxis axis, HeldSums held) {
  SettleMoves moves(held, held);
  moves.add({Operation::all_reduce, axis, held == HeldSums::share});
  return moves;
}

/// Calls f(holding, moves) for the gradients of each group that are settled, in the order in which
/// they are: over samples, and then those that are owed over `tensor`.
template <class F>
constexpr void for_each_settled(const Settling& settling, const mesh& sizes, const Sending& sending,
                                F&& f) {
  if (settling.over_samples ? sample_ranks(sizes) > 1 : settling.before != settling.after)
    for (const Holding holding : holdings) f(holding, moves_over_samples(settling, sizes, sending));
  for (const Holding holding : holdings)
    if (is_owing(holding)) f(holding, moves_along(MeshAxis::tensor, settling.after));
}

/// Adds the calls of all ranks. The rank at each place along `tensor` has as many gradients of the
/// group as `here` says, or all the same if it says one number. A rank that has fewer than others
/// may have fewer buckets.
constexpr void add_calls(CollectiveList& list, const SettleMoves& moves,
                         const GrowingList<std::size_t>& here, const mesh& sizes,
                         const Sending& sending) {
  const bool of_shares = moves.before == HeldSums::share || moves.scatters();
  GrowingList<Collective> merged;
  for (const std::size_t group : here)
    for (int rank = 0; rank < (of_shares ? sizes.data : 1); ++rank) {
      const Place along{rank, sizes.data};
      std::size_t number = 0;
      moves.for_each_bucket(group, along, sending, [&](const SettleBucket& bucket) {
        for (const SettleCall& call : moves) {
          Collective entry = Collective{call.operation, 0, sending.gradients}.over(call.axis);
          if (call.of_share) entry = entry.split_over(MeshAxis::data);
          if (here.size() > 1) entry = entry.split_over(MeshAxis::tensor);
          if (number == merged.size()) merged.add(entry);
          std::size_t& elements = merged[number++].elements;
          if (call.of_share) elements += bucket.share(along).size;
          if (!call.of_share && rank == 0) elements += bucket.size(sizes.data);
        }
      });
    }
  for (const Collective& entry : merged) list.add(entry);
}

}  // namespace shardwise::detail

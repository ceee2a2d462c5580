#pragma once
// Sums over several axes of a mesh as a path: reduce-scatter, all-reduce of the shares, all-gather.

#include <cstddef>
#include <span>
#include <string>

#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/model/collectives.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/redistribute/packed.hpp"

namespace shardwise::detail {

/// Whether ranks along `data` and along another axis have other slices of a batch.
constexpr bool sums_over_axes(const mesh& sizes) {
  return sizes.data > 1 && sample_ranks(sizes) > sizes.data;
}

/// Adds the collectives that add over samples what is summed over `data` already.
constexpr void add_over_other_samples(collectives& list, const Collective& sum, const mesh& sizes) {
  for (const MeshAxis axis : share_axes)
    if (sizes[axis] > 1) list.add(sum.over(axis));
}

/// numbers = their sum over the ranks that have other samples but the same share; they are in the
/// backend's memory.
template <class Context, class T>
void sum_over_other_samples(Run<Context>& run, std::string (*name)(), std::span<T> numbers) {
  for (const MeshAxis axis : share_axes) reduce_along(run, axis, name, numbers);
}

/// Adds the collectives by which sum_in_shares makes this sum.
constexpr void add_sum_in_shares(collectives& list, const Collective& sum, const mesh& sizes) {
  Collective scatter = sum.over(MeshAxis::data), gather = scatter;
  scatter.operation = Operation::reduce_scatter;
  gather.operation = Operation::all_gather;
  list.add(scatter);
  add_over_other_samples(list, sum.split_over(MeshAxis::data), sizes);
  list.add(gather);
}

/// numbers = their sum over the ranks that have other samples of the batch: each rank along `data`
/// sums a share, the shares are summed along the other axes, and gathered. The bits are those of
/// reduce_over_samples, which adds in the same order. They are in the backend's memory.
template <class Context, class T>
void sum_in_shares(Run<Context>& run, std::string (*name)(), std::span<T> numbers) {
  const MarkedGiven without_slice(run.given_to_all);
  const Place along = run.all_ranks.place()[MeshAxis::data];
  auto& ranks = run.all_ranks.along(MeshAxis::data);
  const Counts counts(run.pool, along.size, [&](int rank) {
    return block_of(numbers.size(), {rank, along.size}).size;
  });
  const std::size_t mine = block_of(numbers.size(), along).size;
  const Buffer memory = run.pool.take(mine * sizeof(T));
  const std::span<T> share(static_cast<T*>(memory.data()), mine);
  observed(run, name, shardwise::reduce_scatter(numbers.size(), dtype_v<T>).over(MeshAxis::data),
           [&] { ranks.reduce_scatter(std::span<const T>(numbers), share, counts); });
  sum_over_other_samples(run, name, share);
  observed(run, name, shardwise::all_gather(numbers.size(), dtype_v<T>).over(MeshAxis::data),
           [&] { ranks.all_gather(std::span<const T>(share), numbers, counts); });
}

}  // namespace shardwise::detail

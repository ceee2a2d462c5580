#pragma once
// The reduction of gradients over the ranks, in buckets.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>

#include "shardwise/core/memory.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/model/collectives.hpp"
#include "shardwise/model/precision.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/sending.hpp"
#include "shardwise/model/shares.hpp"
#include "shardwise/model/stages.hpp"
#include "shardwise/model/sums_in_shares.hpp"

namespace shardwise {

namespace detail {

/// Calls f(first, count) for each bucket of `elements` gradients. A bucket has at most
/// `bucket_bytes` bytes, but at least one element.
template <class F>
constexpr void for_each_bucket(std::size_t elements, std::size_t element_bytes,
                               std::size_t bucket_bytes, F&& f) {
  const std::size_t most = std::max<std::size_t>(1, bucket_bytes / element_bytes);
  for (std::size_t first = 0; first < elements; first += most) {
    f(first, std::min(most, elements - first));
  }
}

/// Calls f(first, most) for each bucket of `elements` gradients that are cut into so many shares: a
/// bucket has up to `most` elements of each share, from its element `first` on.
template <class F>
constexpr void for_each_bucket_of_shares(std::size_t elements, int shares,
                                         std::size_t element_bytes, std::size_t bucket_bytes,
                                         F&& f) {
  const std::size_t longest = block_of(elements, {0, shares}).size;
  for_each_bucket(longest, element_bytes * static_cast<std::size_t>(shares), bucket_bytes, f);
}

/// The collectives that settle `elements` gradients.
constexpr collectives settling(std::size_t elements, const Sending& sending) {
  collectives list;
  for_each_bucket(
      elements, size_of(sending.gradients), sending.bucket_bytes,
      [&](std::size_t, std::size_t count) { list.add(all_reduce(count, sending.gradients)); });
  return list;
}

/// Adds an all-reduce along each axis that cuts the samples of a batch over several ranks.
constexpr void add_over_samples(collectives& list, const Collective& entry, const mesh& sizes) {
  for (const MeshAxis axis : sample_axes)
    if (sizes[axis] > 1) list.add(entry.over(axis));
}

/// Adds the collectives of the sum of a bucket of gradients over samples.
constexpr void add_bucket_over_samples(collectives& list, const Collective& sum,
                                       const Sending& sending, const mesh& sizes) {
  if (sending.sums_in_shares && sums_over_axes(sizes)) {
    add_sum_in_shares(list, sum, sizes);
  } else {
    add_over_samples(list, sum, sizes);
  }
}

/// The elements of each bucket at all places together, where the rank at a place has as many
/// gradients as `here` says. for_each(elements, f) calls f(count) for each bucket of a rank. A rank
/// that has fewer gradients than others may have fewer buckets.
template <class ForEach>
constexpr GrowingList<std::size_t> buckets_of(const GrowingList<std::size_t>& here,
                                              ForEach for_each) {
  GrowingList<std::size_t> buckets;
  for (const std::size_t elements : here) {
    std::size_t number = 0;
    for_each(elements, [&](std::size_t count) {
      if (number == buckets.size()) buckets.add(0);
      buckets[number++] += count;
    });
  }
  return buckets;
}
constexpr GrowingList<std::size_t> buckets_of(const GrowingList<std::size_t>& here,
                                              const Sending& sending) {
  return buckets_of(here, [&](std::size_t elements, auto f) {
    for_each_bucket(elements, size_of(sending.gradients), sending.bucket_bytes,
                    [&](std::size_t, std::size_t count) { f(count); });
  });
}

/// The sizes of the shares of `elements` gradients over so many ranks.
constexpr GrowingList<std::size_t> sizes_of_shares(std::size_t elements, int ranks) {
  GrowingList<std::size_t> sizes;
  for (int rank = 0; rank < ranks; ++rank) sizes.add(block_of(elements, {rank, ranks}).size);
  return sizes;
}

/// The collectives that add gradients over samples. The rank at each place along `tensor` holds as
/// many as `here` says, or all the same if it says one number.
constexpr void add_settling_over_samples(collectives& list, const GrowingList<std::size_t>& here,
                                         const Sending& sending, const mesh& sizes) {
  for (const std::size_t elements : buckets_of(here, sending)) {
    const Collective entry = all_reduce(elements, sending.gradients);
    add_bucket_over_samples(list, here.size() > 1 ? entry.split_over(MeshAxis::tensor) : entry,
                            sending, sizes);
  }
}

/// The same where each rank along `data` gets the sums of its share.
constexpr void add_settling_of_shares(collectives& list, const GrowingList<std::size_t>& here,
                                      const Sending& sending, const mesh& sizes) {
  const auto buckets = buckets_of(here, [&](std::size_t elements, auto f) {
    for_each_bucket_of_shares(
        elements, sizes.data, size_of(sending.gradients), sending.bucket_bytes,
        [&](std::size_t first, std::size_t most) {
          std::size_t count = 0;
          for (const std::size_t share : sizes_of_shares(elements, sizes.data))
            count += overlap({0, share}, {first, most}).size;
          f(count);
        });
  });
  for (const std::size_t elements : buckets) {
    const auto of_places = [&](const Collective& entry) {
      return here.size() > 1 ? entry.split_over(MeshAxis::tensor) : entry;
    };
    list.add(of_places(reduce_scatter(elements, sending.gradients).over(MeshAxis::data)));
    add_over_other_samples(
        list, of_places(all_reduce(elements, sending.gradients).split_over(MeshAxis::data)), sizes);
  }
}

/// The same where each rank along `data` stores only the gradients of its share, which are summed
/// over `data` already.
constexpr void add_settling_of_stored(collectives& list, const GrowingList<std::size_t>& here,
                                      const Sending& sending, const mesh& sizes) {
  GrowingList<std::size_t> stored;
  for (const std::size_t elements : here)
    for (const std::size_t share : sizes_of_shares(elements, sizes.data)) stored.add(share);
  for (const std::size_t elements : buckets_of(stored, sending)) {
    const Collective sum = all_reduce(elements, sending.gradients).split_over(MeshAxis::data);
    add_over_other_samples(list, here.size() > 1 ? sum.split_over(MeshAxis::tensor) : sum, sizes);
  }
}

/// The same of `owed` gradients that are summands over `tensor`, of which each rank has its share.
constexpr void add_settling_of_owed_shares(collectives& list, std::size_t owed,
                                           const Sending& sending, const mesh& sizes) {
  for (const std::size_t elements : buckets_of(sizes_of_shares(owed, sizes.data), sending))
    list.add(all_reduce(elements, sending.gradients).split_over(MeshAxis::data));
}

/// The collectives of a step that begins its sums in backward, where each rank along `data` gets
/// the sums of its share, as those of a step whose ranks get whole sums, `whole`, and of one that
/// sums after backward, `after`: each bucket of the first is scattered along `data` and summed
/// along the other axes in shares. Sums over `tensor` come after backward.
constexpr collectives settling_meanwhile(const collectives& whole, const collectives& after) {
  collectives list;
  for (const Collective& entry : whole) {
    Collective scatter = entry;
    scatter.operation = Operation::reduce_scatter;
    if (entry.axis == MeshAxis::data && entry.operation != Operation::all_gather) list.add(scatter);
    for (const MeshAxis axis : share_axes)
      if (entry.axis == axis) list.add(entry.split_over(MeshAxis::data));
  }
  for (const Collective& entry : after)
    if (entry.axis == MeshAxis::tensor) list.add(entry);
  return list;
}

/// Calls add(bucket) for each bucket of `gradients`, in the dtype in which they are sent.
template <class Context, class Gradient, class Add>
void settle_in_buckets(Run<Context>& run, std::span<Gradient> gradients, Add&& add) {
  using Reduce = typename Context::precision::reduce;
  for_each_bucket(
      gradients.size(), sizeof(Reduce), run.bucket_bytes,
      [&](std::size_t first, std::size_t count) {
        const std::span<Gradient> bucket = gradients.subspan(first, count);
        if constexpr (std::same_as<Gradient, Reduce>) {
          add(bucket);
        } else {
          const Buffer memory = run.pool.take(count * sizeof(Reduce));
          const std::span<Reduce> sent(static_cast<Reduce*>(memory.data()), count);
          run.backend.for_each(count, RoundTo<Reduce, Gradient>{bucket.data(), sent.data()});
          add(sent);
          run.backend.for_each(count, RoundTo<Gradient, Reduce>{sent.data(), bucket.data()});
        }
      });
}

/// to = so many gradients of each rank's share of `all`, from element `first` of a share on, one
/// share after the other.
template <class Context, class Reduce>
void pack_bucket(Run<Context>& run, const Interval& all, std::size_t first,
                 std::span<const std::size_t> counts, Reduce* to) {
  using Gradient = typename Context::precision::gradient;
  const int ranks = static_cast<int>(counts.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t count = counts[static_cast<std::size_t>(rank)];
    const std::size_t from = share_of(all, {rank, ranks}).offset + first;
    run.backend.for_each(count,
                         RoundTo<Reduce, Gradient>{run.parameters.gradients().data() + from, to});
    to += count;
  }
}

/// Sums the gradients of this rank's share over the ranks of a mesh that have other samples.
/// Summands are in the order of reduce_over_samples, so that sums have the same bits. The gradients
/// of other shares stay summands.
template <class Context>
void sum_share_over_samples(Run<Context>& run, Shares& shares, const Share& share) {
  using Reduce = typename Context::precision::reduce;
  using Gradient = typename Context::precision::gradient;
  auto& ranks = run.all_ranks.along(MeshAxis::data);
  const auto sum_bucket = [&](std::size_t first, std::size_t most) {
    const auto piece = [&](const Interval& of) { return Interval{of.offset + first, most}; };
    const std::size_t size = shares.count(share.all, piece);
    const Buffer memory = run.pool.take(size * sizeof(Reduce));
    const std::span<Reduce> sent(static_cast<Reduce*>(memory.data()), size);
    pack_bucket(run, share.all, first, shares.counts, sent.data());
    const std::size_t mine = shares.counts[static_cast<std::size_t>(ranks.rank())];
    const Buffer sums = run.pool.take(mine * sizeof(Reduce));
    const std::span<Reduce> sum(static_cast<Reduce*>(sums.data()), mine);
    observed(run, name_of_gradients,
             shardwise::reduce_scatter(size, dtype_v<Reduce>).over(MeshAxis::data),
             [&] { ranks.reduce_scatter(std::span<const Reduce>(sent), sum, shares.counts); });
    sum_over_other_samples(run, name_of_gradients, sum);
    run.backend.for_each(
        mine, RoundTo<Gradient, Reduce>{
                  sum.data(), run.parameters.gradients().data() + share.gradients.offset + first});
  };
  for_each_bucket_of_shares(share.all.size, ranks.size(), sizeof(Reduce), run.bucket_bytes,
                            sum_bucket);
}

/// numbers = their sums over the ranks whose stages share parameters.
template <class Context, class Reduce>
void sum_over_sharing_ranks(Run<Context>& run, std::span<Reduce> numbers) {
  observed(run, name_of_gradients,
           shardwise::all_reduce(numbers.size(), dtype_v<Reduce>).over(MeshAxis::pipeline), [&] {
             run.sharing_stages->all_reduce(std::span<const Reduce>(numbers), numbers,
                                            Reduction::sum);
           });
}

/// The gradients of a group that this rank settles.
template <class Context>
auto settled_here(const Run<Context>& run, const Shares* shares, Holding holding) {
  const bool is_cut = shares != nullptr && shares->are_cut();
  if (!is_cut) return run.parameters.of(holding);
  const Interval mine = shares->of[static_cast<std::size_t>(holding)].gradients;
  return run.parameters.gradients().subspan(mine.offset, mine.size);
}

/// Sums the gradients of parameters that stages of a pipeline share: first those of the stages that
/// the rank has, and then over the ranks. Each stage gets the sums.
template <class Context, std::size_t N>
void settle_shared(const Runs<Context, N>& runs) {
  using Gradient = typename Context::precision::gradient;
  std::size_t first = 0;
  while (first < N && runs.of[first]->sharing_stages == nullptr) ++first;
  if (first == N) return;
  auto& run = *runs.of[first];
  const auto here = in_phase<Phase::settle>(run);
  for (const Holding holding : holdings) {
    if (!is_on_stages(holding)) continue;
    run.parameters.collect(run.backend);
    const std::span<Gradient> all = settled_here(run, runs.shares[first], holding);
    const auto for_each_other = [&](auto f) {
      for (std::size_t i = first + 1; i < N; ++i) {
        Run<Context>& other = *runs.of[i];
        if (other.sharing_stages == nullptr) continue;
        other.parameters.collect(run.backend);
        f(settled_here(other, runs.shares[i], holding).data());
      }
    };
    for_each_other([&](const Gradient* other) {
      run.backend.for_each(all.size(), Collect<Gradient, Gradient>{other, all.data(), true});
    });
    settle_in_buckets(run, all, [&](auto bucket) { sum_over_sharing_ranks(run, bucket); });
    for_each_other([&](Gradient* other) {
      run.backend.for_each(all.size(), RoundTo<Gradient, Gradient>{all.data(), other});
    });
  }
}

/// numbers = their sums over the ranks that have other samples, which must be a mesh's.
template <class Context, class Reduce>
void sum_bucket_over_samples(Run<Context>& run, std::span<Reduce> numbers) {
  if (run.sums_in_shares && sums_over_axes(run.all_ranks.sizes())) {
    sum_in_shares(run, name_of_gradients, numbers);
  } else {
    reduce_over_samples(run, name_of_gradients, numbers);
  }
}

/// Sums over the ranks those gradients of one model that are summands, but for those that stages
/// share. Gradients that are summed over samples already are whole for all ranks.
template <class Context>
void settle_model(Run<Context>& run, Shares* shares) {
  const bool over_samples = run.gradients == GradientState::summands;
  const bool has_share = run.gradients == GradientState::share_summed_over_samples;
  if (!over_samples && !has_share) shares = nullptr;
  run.gradients = GradientState::whole;
  const auto here = in_phase<Phase::settle>(run);
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    if (has_share && (shares == nullptr || !shares->are_cut()))
      for (const Holding holding : holdings)
        gather_share(run, name_of_gradients, run.parameters.of(holding));
    if (over_samples && sample_ranks(run.all_ranks.sizes()) > 1) {
      run.parameters.collect(run.backend);
      const bool has_summed_share = run.parameters.stores_share_of_gradients();
      if (!has_summed_share && shares != nullptr && shares->are_cut()) {
        for (const Share& share : shares->of) sum_share_over_samples(run, *shares, share);
      } else {
        for (const Holding holding : holdings)
          settle_in_buckets(run, run.parameters.of(holding), [&](auto bucket) {
            if (has_summed_share) {
              sum_over_other_samples(run, name_of_gradients, bucket);
            } else {
              sum_bucket_over_samples(run, bucket);
            }
          });
      }
    }
  }
  run.parameters.collect_owing(run.backend);
  for (const Holding holding : holdings)
    if (is_owing(holding))
      settle_in_buckets(run, settled_here(run, shares, holding),
                        [&](auto bucket) { all_reduce(run, name_of_gradients, bucket); });
}

/// Sums over the ranks the gradients that are summands, once a step, of all models that the rank
/// trains together. If they are sent in another dtype, they are rounded to it and back, on one rank
/// too. Gradients that are no summands stay where layers wrote them. On a mesh the gradients of
/// ranks that have other samples are summands, too, of every parameter; those sums come first.
/// Those over the stages of a pipeline that share parameters come last, so that the copies of these
/// stages get the same bits. If shares are given that are cut, only the gradients of these shares
/// are whole afterwards. Gradients that are summed over samples already are not summed over these
/// again, and are then whole for all ranks; if only those of each rank's share are, and no shares
/// are given, ranks gather them.
/// throws   argument_error if stages share parameters and others of the rank are missing
template <class Context, std::size_t N>
void settle(const Runs<Context, N>& runs) {
  const GradientState gradients = runs.first().gradients;
  if (gradients == GradientState::none || are_whole(gradients)) return;
  if constexpr (MeshCommunicator<typename Context::communicator>)
    if (runs.first().sharing_stages != nullptr) require_all_stages(runs, "settle_gradients");
  for (std::size_t i = 0; i < N; ++i) settle_model(*runs.of[i], runs.shares[i]);
  if constexpr (MeshCommunicator<typename Context::communicator>) settle_shared(runs);
}

}  // namespace detail

}  // namespace shardwise

#pragma once
// The reduction of gradients over the ranks, in buckets.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>

#include "shardwise/model/collectives.hpp"
#include "shardwise/model/precision.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/sending.hpp"

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

/// The collectives that add over samples gradients of which each rank holds all `elements`.
constexpr void add_settling_over_samples(collectives& list, std::size_t elements,
                                         const Sending& sending, const mesh& sizes) {
  for (const Collective& entry : settling(elements, sending)) add_over_samples(list, entry, sizes);
}

/// The same of gradients that are split over `tensor`; the rank at each place holds as many as
/// `here` says. A rank that holds fewer than others may have fewer buckets.
constexpr void add_settling_over_samples(collectives& list, const GrowingList<std::size_t>& here,
                                         const Sending& sending, const mesh& sizes) {
  GrowingList<std::size_t> buckets;  // of all places together
  for (const std::size_t elements : here) {
    std::size_t number = 0;
    for_each_bucket(elements, size_of(sending.gradients), sending.bucket_bytes,
                    [&](std::size_t, std::size_t count) {
                      if (number == buckets.size()) buckets.add(0);
                      buckets[number++] += count;
                    });
  }
  for (const std::size_t elements : buckets) {
    const Collective entry = all_reduce(elements, sending.gradients);
    add_over_samples(list, here.size() > 1 ? entry.split_over(MeshAxis::tensor) : entry, sizes);
  }
}

inline std::string name_of_gradients() { return "gradients"; }

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

/// Sums over the ranks the gradients that are summands, once a step. If they are sent in another
/// dtype, they are rounded to it and back, on one rank too. Gradients that are no summands stay
/// where layers wrote them. On a mesh the gradients of ranks that have other samples are summands,
/// too, of every parameter; those sums come first.
template <class Context>
void settle(Run<Context>& run) {
  if (run.gradients != GradientState::summands) return;
  run.gradients = GradientState::whole;
  const auto here = in_phase<Phase::settle>(run);
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    if (sample_ranks(run.all_ranks.sizes()) > 1) {
      run.parameters.collect(run.backend);
      for (const Holding holding : {Holding::owing, Holding::alike, Holding::split})
        settle_in_buckets(run, run.parameters.of(holding),
                          [&](auto bucket) { sum_over_samples(run, name_of_gradients, bucket); });
    }
  }
  run.parameters.collect_owing(run.backend);
  settle_in_buckets(run, run.parameters.owing(),
                    [&](auto bucket) { all_reduce(run, name_of_gradients, bucket); });
}

}  // namespace detail

}  // namespace shardwise

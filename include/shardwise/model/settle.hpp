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

inline std::string name_of_gradients() { return "gradients"; }

/// Sums over the ranks the gradients that are summands, once a step. If they are sent in another
/// dtype, they are rounded to it and back, on one rank too. Gradients without an owed reduction
/// stay where layers wrote them.
template <class Context>
void settle(Run<Context>& run) {
  if (run.gradients != GradientState::summands) return;
  run.gradients = GradientState::whole;
  const auto here = in_phase<Phase::settle>(run);
  using Gradient = typename Context::precision::gradient;
  using Reduce = typename Context::precision::reduce;
  run.parameters.collect_owing(run.backend);
  const std::span<Gradient> owing = run.parameters.owing();
  for_each_bucket(
      owing.size(), sizeof(Reduce), run.bucket_bytes, [&](std::size_t first, std::size_t count) {
        const std::span<Gradient> bucket = owing.subspan(first, count);
        if constexpr (std::same_as<Gradient, Reduce>) {
          all_reduce(run, name_of_gradients, bucket);
        } else {
          const Buffer memory = run.pool.take(count * sizeof(Reduce));
          const std::span<Reduce> sent(static_cast<Reduce*>(memory.data()), count);
          run.backend.for_each(count, RoundTo<Reduce, Gradient>{bucket.data(), sent.data()});
          all_reduce(run, name_of_gradients, sent);
          run.backend.for_each(count, RoundTo<Gradient, Reduce>{sent.data(), bucket.data()});
        }
      });
}

}  // namespace detail

}  // namespace shardwise

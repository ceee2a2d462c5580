#pragma once
// The reduction of gradients over the ranks, in buckets.

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>

#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/model/collective_list.hpp"
#include "shardwise/model/precision.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/settle_moves.hpp"
#include "shardwise/model/shares.hpp"
#include "shardwise/model/stages.hpp"
#include "shardwise/redistribute/packed.hpp"

namespace shardwise {

namespace detail {

/// The place of this rank along `data`.
template <class Context>
Place place_along_data([[maybe_unused]] const Run<Context>& run) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    return run.all_ranks.place()[MeshAxis::data];
  } else {
    return {};
  }
}

/// The ranks along one axis; along `pipeline` those whose stages share parameters.
template <class Context>
auto& ranks_along(Run<Context>& run, [[maybe_unused]] MeshAxis axis) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    return axis == MeshAxis::pipeline ? *run.stage.tied_ranks : run.all_ranks.along(axis);
  } else {
    return run.ranks;
  }
}

/// Elements of a group of gradients, which are in this rank's memory.
template <class Context>
auto gradients_of(const Run<Context>& run, Holding holding, const Interval& elements) {
  const ParameterLayout& layout = run.parameters.gradient_layout();
  const std::size_t first = share_of({0, layout.size_of(holding)}, layout.along()).offset;
  return run.parameters.of(holding).subspan(elements.offset - first, elements.size);
}

/// What the rank gets of gradients that are settled for these shares, or for none.
template <class Context>
HeldSums settled_for(const Run<Context>& run, const Shares* shares) {
  const bool is_cut = shares != nullptr && shares->are_cut;
  return is_cut || run.parameters.stores_share_of_gradients() ? HeldSums::share : HeldSums::whole;
}

/// These gradients of a group.
template <class Context>
auto settled_here(const Run<Context>& run, const Shares* shares, Holding holding) {
  const Interval all{0, run.parameters.gradient_layout().size_of(holding)};
  const bool is_share = settled_for(run, shares) == HeldSums::share;
  return gradients_of(run, holding, is_share ? share_of(all, place_along_data(run)) : all);
}

/// A bucket of gradients in the dtype in which they are sent.
template <class Context>
struct SentBucket {
  using Reduce = typename Context::precision::reduce;      ///< that dtype
  using Gradient = typename Context::precision::gradient;  ///< that of the gradients

  std::span<Reduce> all{};     ///< what the rank sends
  std::span<Reduce> share{};   ///< its share of the sums, or the same memory
  std::span<Gradient> sums{};  ///< where they are to be stored
  bool are_shares = false;     ///< whether these are those of `share`
  Buffer memory{};
  Buffer memory_of_share{};

  SentBucket() = default;
  SentBucket(Run<Context>& run, Holding holding, const SettleMoves& moves,
             const SettleBucket& bucket) {
    const auto take = [&](Buffer& buffer, std::size_t count) {
      buffer = run.pool.take(count * sizeof(Reduce));
      return std::span<Reduce>(static_cast<Reduce*>(buffer.data()), count);
    };
    const Place along = place_along_data(run);
    const Interval mine = bucket.share(along);
    are_shares = moves.after == HeldSums::share;
    sums = gradients_of(run, holding, are_shares ? mine : bucket.piece);
    if (moves.before == HeldSums::summands && bucket.of_each_share) {
      all = take(memory, bucket.size(along.size));
      Reduce* to = all.data();
      for (int rank = 0; rank < along.size; ++rank) {
        const auto from = gradients_of(run, holding, bucket.share({rank, along.size}));
        round(run, std::span<const Gradient>(from), to);
        to += from.size();
      }
    } else {
      const auto here = gradients_of(run, holding, bucket.of_each_share ? mine : bucket.piece);
      if constexpr (std::same_as<Gradient, Reduce>) {
        all = here;
      } else {
        all = take(memory, here.size());
        round(run, std::span<const Gradient>(here), all.data());
      }
    }
    share = moves.scatters() ? take(memory_of_share, mine.size) : all;
  }

  /// Rounds the sums to gradients.
  void store(Run<Context>& run) const {
    const Reduce* const from = are_shares ? share.data() : all.data();
    if (static_cast<const void*>(from) != sums.data())
      run.backend.for_each(sums.size(), RoundTo<Gradient, Reduce>{from, sums.data()});
  }

 private:
  static void round(Run<Context>& run, std::span<const Gradient> from, Reduce* to) {
    run.backend.for_each(from.size(), RoundTo<Reduce, Gradient>{from.data(), to});
  }
};

/// Makes one call of a bucket.
template <class Context>
void make_call(Run<Context>& run, const SettleCall& call,
               [[maybe_unused]] const SettleBucket& bucket, const SentBucket<Context>& sent) {
  using T = typename SentBucket<Context>::Reduce;
  auto& ranks = ranks_along(run, call.axis);
  const std::span<T> numbers = call.of_share ? sent.share : sent.all;
  const Collective made{call.operation, numbers.size(), dtype_v<T>};
  observed(run, name_of_gradients, made.over(call.axis), [&] {
    if (call.operation == Operation::all_reduce) {
      ranks.all_reduce(std::span<const T>(numbers), numbers, Reduction::sum);
    } else if constexpr (MeshCommunicator<typename Context::communicator>) {
      const Counts counts(run.pool, ranks.size(), [&](int rank) {
        return bucket.share({rank, ranks.size()}).size;
      });
      if (call.operation == Operation::reduce_scatter)
        ranks.reduce_scatter(std::span<const T>(sent.all), sent.share, counts);
      else
        ranks.all_gather(std::span<const T>(sent.share), sent.all, counts);
    }
  });
}

/// Settles a group of gradients. If they are sent in another dtype, they are rounded to it and
/// back.
template <class Context>
void settle_group(Run<Context>& run, Holding holding, const SettleMoves& moves) {
  moves.for_each_bucket(run.parameters.gradient_layout().size_of(holding), place_along_data(run),
                        run.sending, [&](const SettleBucket& bucket) {
                          const SentBucket<Context> sent(run, holding, moves, bucket);
                          for (const SettleCall& call : moves) make_call(run, call, bucket, sent);
                          sent.store(run);
                        });
}

/// Sums the gradients of parameters that stages of a pipeline share: first those of the stages that
/// the rank has, and then over the ranks. Each stage gets the sums.
template <class Context, std::size_t N>
void settle_shared(const Runs<Context, N>& runs) {
  using Gradient = typename Context::precision::gradient;
  std::size_t first = 0;
  while (first < N && runs.of[first]->stage.tied_ranks == nullptr) ++first;
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
        if (other.stage.tied_ranks == nullptr) continue;
        other.parameters.collect(run.backend);
        f(settled_here(other, runs.shares[i], holding).data());
      }
    };
    for_each_other([&](const Gradient* other) {
      run.backend.for_each(all.size(), Collect<Gradient, Gradient>{other, all.data(), true});
    });
    settle_group(run, holding,
                 moves_along(MeshAxis::pipeline, settled_for(run, runs.shares[first])));
    for_each_other([&](Gradient* other) {
      run.backend.for_each(all.size(), RoundTo<Gradient, Gradient>{all.data(), other});
    });
  }
}

/// What is settled of a model whose gradients are in this state.
template <class Context>
Settling settling_of(const Run<Context>& run, const Shares* shares) {
  if (run.step.gradients == GradientState::summed_over_samples)
    return {HeldSums::whole, HeldSums::whole, false};
  const bool over_samples = run.step.gradients == GradientState::summands;
  const bool has_share = !over_samples || run.parameters.stores_share_of_gradients();
  return {has_share ? HeldSums::share : HeldSums::summands, settled_for(run, shares), over_samples};
}

/// Sums over the ranks those gradients of one model that are summands, but for those that stages
/// share. Gradients that are summed over samples already are whole for all ranks.
template <class Context>
void settle_model(Run<Context>& run, const Shares* shares) {
  const Settling settling = settling_of(run, shares);
  run.step.gradients = GradientState::whole;
  const auto here = in_phase<Phase::settle>(run);
  mesh sizes;
  if constexpr (MeshCommunicator<typename Context::communicator>) sizes = run.all_ranks.sizes();
  if (sample_ranks(sizes) > 1) run.parameters.collect(run.backend);
  run.parameters.collect_owing(run.backend);
  for_each_settled(settling, sizes, run.sending, [&](Holding holding, const SettleMoves& moves) {
    if constexpr (MeshCommunicator<typename Context::communicator>)
      if (moves.gathers()) return gather_share(run, name_of_gradients, run.parameters.of(holding));
    settle_group(run, holding, moves);
  });
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
  const GradientState gradients = runs.first().step.gradients;
  if (gradients == GradientState::none || are_whole(gradients)) return;
  if constexpr (MeshCommunicator<typename Context::communicator>)
    if (runs.first().stage.tied_ranks != nullptr) require_all_stages(runs, "settle_gradients");
  for (std::size_t i = 0; i < N; ++i) settle_model(*runs.of[i], runs.shares[i]);
  if constexpr (MeshCommunicator<typename Context::communicator>) settle_shared(runs);
}

}  // namespace detail

}  // namespace shardwise

#pragma once
// Sums of gradients over the ranks while backward goes on.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "shardwise/comm/detail/begun.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/parameter_layout.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/settle.hpp"
#include "shardwise/model/shares.hpp"

namespace shardwise::detail {

/// Sums the gradients of a model on a mesh over the ranks that have other samples (along `data`,
/// `replica` and `context`) while the last batch of a step goes backward: each bucket of
/// `bucket_bytes` as soon as all layers have added to it. Parameters, losses and norms have the
/// same bits as without it.
///
/// A bucket is summed along one of these axes after the other: along the second when the next layer
/// has gone backward, which first waits for the first sum, and so on. With `sums_in_shares` its
/// sums along all axes are made at once. The batch that completes the samples of a step is its last
/// one.
///
/// With an optimizer that has `Keep::state_over_data` each bucket is scattered along `data`: a rank
/// gets the sums of its own share, which are then summed along the other axes. Ranks send half of
/// the bytes of whole sums. Between the last `add` of a step and its `finish`, gradients of other
/// shares are no sums; settle_gradients gathers these sums from the ranks that have them.
///
/// Keeps memory for the sums that are under way, and allocates nothing after the first steps.
template <class Context>
class SumsOfBuckets {
  using Reduce = typename Context::precision::reduce;

 public:
  explicit SumsOfBuckets(Run<Context>& run) : run_(run) {}
  SumsOfBuckets(const SumsOfBuckets&) = delete;
  SumsOfBuckets& operator=(const SumsOfBuckets&) = delete;
  ~SumsOfBuckets() { discard(); }

  ///@{
  /// As Traffic says of the last batch.
  void begin(bool shares_are_cut) {
    if (!run_.options.sums_meanwhile || sample_ranks(run_.all_ranks.sizes()) == 1) return;
    if (run_.parameters.stores_share_of_gradients()) return;  // then layers sum
    shares_ = shares_are_cut;
    set_buckets();
    write_ = run_.step.write();
    run_.parameters.collect_in_parts(true);
    is_under_way_ = true;
  }
  void written(std::span<const ParameterSlot> parameters) {
    if (!is_under_way_) return;
    for (const std::size_t number : begun_) begin_next(buckets_[number]);
    for (const ParameterSlot& slot : parameters) {
      const Interval elements{run_.parameters.position(slot), slot.size};
      for (Bucket& bucket : buckets_) {
        const std::size_t here = overlap(bucket.elements, elements).size;
        bucket.missing -= here;
        if (here > 0 && bucket.missing == 0) begin_sum(bucket);
      }
    }
  }
  void progress() {
    for (const std::size_t number : begun_)
      buckets_[number].with_sum([](auto& sum) { sum.progress(); });
  }
  void end() {
    if (!is_under_way_) return;
    const auto here = in_phase<Phase::settle>(run_);
    for (Bucket& bucket : buckets_)
      if (bucket.missing > 0) begin_sum(bucket);
    for (bool more = true; more;) {
      more = false;
      for (const std::size_t number : begun_) more |= begin_next(buckets_[number]);
    }
    for (const std::size_t number : begun_) end_sum(buckets_[number]);
    discard();
    run_.step.gradients =
        shares_ ? GradientState::share_summed_over_samples : GradientState::summed_over_samples;
  }
  void discard() noexcept {
    if (!is_under_way_) return;
    buckets_.clear();  // waits for the sums
    begun_.clear();
    run_.parameters.collect_in_parts(false);
    is_under_way_ = false;
  }
  ///@}

 private:
  template <class Move>
  using Begun = begun_along_t<typename Context::communicator, Move>;

  /// Some gradients, which are summed together.
  struct Bucket {
    Holding group;  ///< of which these are some
    SettleBucket of_group;
    Interval elements;        ///< the same, of all of the model's gradients
    std::size_t missing = 0;  ///< of these, what backward has not written yet
    std::size_t begun = 0;    ///< the number of calls that have begun
    SentBucket<Context> sent{};
    std::optional<Begun<moves::AllReduce<Reduce>>> sum{};
    std::optional<Begun<moves::ReduceScatter<Reduce>>> sum_of_share{};

    /// Calls f(sum) for the sum that is under way, if one is.
    template <class F>
    void with_sum(F f) {
      if (sum) f(*sum);
      if (sum_of_share) f(*sum_of_share);
    }
  };

  /// All of their gradients are missing.
  void set_buckets() {
    const Sending& sending = run_.sending;
    const auto sums = shares_ ? HeldSums::share : HeldSums::whole;
    moves_ = moves_over_samples({.after = sums}, run_.all_ranks.sizes(), sending);
    for (const Holding holding : holdings) {
      const Interval group = run_.parameters.elements_of(holding);
      moves_.for_each_bucket(
          group.size, place_along_data(run_), sending, [&](const SettleBucket& bucket) {
            const auto& [first, count] = bucket.piece;
            buckets_.push_back({holding, bucket, {group.offset + first, count}, count});
          });
    }
  }

  void begin_sum(Bucket& bucket) {
    const auto here = in_phase<Phase::settle>(run_);
    bucket.missing = 0;
    begun_.push_back(static_cast<std::size_t>(&bucket - buckets_.data()));
    run_.parameters.collect_part(run_.backend, bucket.elements, write_);
    bucket.sent = SentBucket<Context>(run_, bucket.group, moves_, bucket.of_group);
    if (shares_ || !moves_.scatters()) {
      begin_next(bucket);
    } else {
      for (const SettleCall& call : moves_) make_call(run_, call, bucket.of_group, bucket.sent);
      bucket.begun = moves_.size;
    }
  }

  /// Ends the call that is under way, and begins the next one. Does nothing and returns false if
  /// there is none. All ranks call it at the same points of a backward, whether or not their sums
  /// are through: others of their calls may go to the same ranks.
  bool begin_next(Bucket& bucket) {
    if (bucket.begun == moves_.size) return false;
    const SettleCall& call = moves_.calls[bucket.begun++];
    const auto here = in_phase<Phase::settle>(run_);
    finish(bucket);
    if (call.operation == Operation::reduce_scatter) {
      const int ranks = run_.all_ranks.sizes().data;
      const Counts counts(run_.pool, ranks, [&](int rank) {
        return bucket.of_group.share({rank, ranks}).size;
      });
      begin_along(call.axis,
                  moves::ReduceScatter<Reduce>{bucket.sent.all, bucket.sent.share, counts},
                  bucket.sum_of_share);
    } else {
      const std::span<Reduce> numbers = call.of_share ? bucket.sent.share : bucket.sent.all;
      begin_along(call.axis, moves::AllReduce<Reduce>{numbers, numbers}, bucket.sum);
    }
    return true;
  }

  void finish(Bucket& bucket) {
    bucket.with_sum([](auto& sum) { sum.finish(); });
    bucket.sum.reset();
    bucket.sum_of_share.reset();
  }

  void end_sum(Bucket& bucket) {
    finish(bucket);
    bucket.sent.store(run_);
  }

  template <class Move>
  void begin_along(MeshAxis axis, const Move& sum, std::optional<Begun<Move>>& under_way) {
    const Collective entry{Move::operation, sum.in.size(), dtype_v<Reduce>};
    observed(run_, name_of_gradients, entry.over(axis),
             [&] { under_way.emplace(sum.begun_on(run_.all_ranks.along(axis))); });
  }

  Run<Context>& run_;
  bool is_under_way_ = false;  // from begin() to its end or discard()
  bool shares_ = false;        // whether a rank gets the sums of its share
  SettleMoves moves_{};        // of each bucket
  std::vector<Bucket> buckets_{};
  std::vector<std::size_t> begun_{};  // numbers of buckets, in the order in which they began
  Write write_ = Write::replace;      // how the batch adds to the gradients
};

}  // namespace shardwise::detail

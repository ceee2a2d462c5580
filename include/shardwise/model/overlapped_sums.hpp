#pragma once
// Sums of gradients over the ranks while backward goes on.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/comm/detail/begun.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/model/meanwhile.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/overlapped_reduction.hpp"
#include "shardwise/model/parameter_layout.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/settle.hpp"
#include "shardwise/model/shares.hpp"

namespace shardwise::detail {

/// Sums the gradients of a model on a mesh over the ranks that have other samples (along `data`,
/// `replica` and `context`) while the last batch of a step goes backward: each bucket of
/// `set_bucket_bytes` as soon as all layers have added to it. Parameters, losses and norms have the
/// same bits as without it.
///
/// Where the communicator `BeginsCollectives` or `StartsAllReduce`, messages are under way while
/// the rank computes. A bucket is summed along one of these axes after the other: along the second
/// when the next layer has gone backward, which first waits for the first sum, and so on. On other
/// communicators, such as ThreadCommunicator, each sum is made where it begins, and with
/// `set_sums_in_shares` those along all axes at once, which saves no time. The batch that completes
/// the samples of a step is its last one.
///
/// With an optimizer that has `Keep::state_over_data` each bucket is scattered along `data`: a rank
/// gets the sums of its own share, which are then summed along the other axes. Ranks send half of
/// the bytes of whole sums. Between the last `add` of a step and its `finish`, gradients of other
/// shares are no sums; settle_gradients gathers these sums from the ranks that have them.
///
/// In a model that was made with a Keep that cuts gradients, layers sum them along `data` in each
/// backward. Then, in all backwards, the sums of a layer are under way while the layer before it
/// goes backward, and end when the sums of that one begin. A rank needs memory for the gradients of
/// one more layer; `state_of_rank` tells it. Sums along the other axes come after backward. Where
/// the communicator neither `BeginsCollectives` nor `StartsReduceScatter`, layers sum for
/// themselves, as without it.
///
/// Keeps memory for the sums that are under way, and allocates nothing after the first steps.
template <class Context>
class OverlappedSums final : public detail::SumsMeanwhile {
  using Ranks = typename Context::communicator;
  using Group = std::remove_reference_t<decltype(std::declval<Ranks&>().along(MeshAxis::data))>;
  using Reduce = typename Context::precision::reduce;

 public:
  explicit OverlappedSums(Run<Context>& run) : run_(run), of_layers_(run) { run.sums = this; }
  OverlappedSums(const OverlappedSums&) = delete;
  OverlappedSums& operator=(const OverlappedSums&) = delete;
  ~OverlappedSums() override { discard(); }

  ///@{
  /// For Step, see SumsMeanwhile.
  void begin(bool shares_are_cut) override {
    if (detail::sample_ranks(run_.all_ranks.sizes()) == 1) return;
    if (run_.parameters.stores_share_of_gradients()) return;  // see of_layers_
    shares_ = shares_are_cut;
    set_buckets();
    write_ = run_.write();
    run_.parameters.collect_in_parts(true);
    is_under_way_ = true;
  }
  void written(std::span<const detail::ParameterSlot> parameters) override {
    if (!is_under_way_) return;
    for (const std::size_t number : begun_) move_on(buckets_[number]);
    for (const detail::ParameterSlot& slot : parameters) {
      const Interval elements{run_.parameters.position(slot), slot.size};
      for (Bucket& bucket : buckets_) {
        const std::size_t here = overlap(bucket.elements, elements).size;
        bucket.missing -= here;
        if (here > 0 && bucket.missing == 0) begin_sum(bucket);
      }
    }
  }
  void end() override {
    if (!is_under_way_) return;
    const auto here = detail::in_phase<Phase::settle>(run_);
    for (Bucket& bucket : buckets_)
      if (bucket.missing > 0) begin_sum(bucket);
    for (bool more = true; more;) {
      more = false;
      for (const std::size_t number : begun_) more |= begin_next(buckets_[number]);
    }
    for (const std::size_t number : begun_) end_sum(buckets_[number]);
    discard();
    run_.gradients =
        shares_ ? GradientState::share_summed_over_samples : GradientState::summed_over_samples;
  }
  void discard() noexcept override {
    if (!is_under_way_) return;
    buckets_.clear();  // waits for the sums
    run_.parameters.collect_in_parts(false);
    is_under_way_ = false;
  }
  ///@}

 private:
  template <class Move>
  using Begun = decltype(detail::begun(std::declval<Group&>(), std::declval<const Move&>()));

  /// Some gradients, which are summed together.
  struct Bucket {
    detail::Holding group;  ///< of which these are some
    detail::SettleBucket of_group;
    Interval elements;        ///< the same, of all of the model's gradients
    std::size_t missing = 0;  ///< of these, what backward has not written yet
    std::size_t begun = 0;    ///< the number of calls that have begun
    detail::SentBucket<Context> sent{};
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
    buckets_.clear();
    begun_.clear();
    Sending sending = run_.sending();
    sending.sums_in_backward = true;
    const auto sums = shares_ ? detail::HeldSums::share : detail::HeldSums::whole;
    moves_ = detail::moves_over_samples({.after = sums}, run_.all_ranks.sizes(), sending);
    for (const detail::Holding holding : detail::holdings) {
      const Interval group = run_.parameters.elements_of(holding);
      moves_.for_each_bucket(
          group.size, detail::place_along_data(run_), sending,
          [&](const detail::SettleBucket& bucket) {
            const auto& [first, count] = bucket.piece;
            buckets_.push_back({holding, bucket, {group.offset + first, count}, count});
          });
    }
  }

  void begin_sum(Bucket& bucket) {
    const auto here = detail::in_phase<Phase::settle>(run_);
    bucket.missing = 0;
    begun_.push_back(static_cast<std::size_t>(&bucket - buckets_.data()));
    run_.parameters.collect_part(run_.backend, bucket.elements, write_);
    bucket.sent = detail::SentBucket<Context>(run_, bucket.group, moves_, bucket.of_group);
    if (shares_ || !moves_.scatters()) {
      begin_next(bucket);
    } else {
      for (const detail::SettleCall& call : moves_)
        detail::make_call(run_, call, bucket.of_group, bucket.sent);
      bucket.begun = moves_.size;
    }
  }

  /// Ends the call that is under way, and begins the next one. Does nothing and returns false if
  /// there is none. All ranks call it at the same points of a backward, whether or not their sums
  /// are through: others of their calls may go to the same ranks.
  bool begin_next(Bucket& bucket) {
    if (bucket.begun == moves_.size) return false;
    const detail::SettleCall& call = moves_.calls[bucket.begun++];
    const auto here = detail::in_phase<Phase::settle>(run_);
    finish(bucket);
    if (call.operation == Operation::reduce_scatter) {
      const int ranks = run_.all_ranks.sizes().data;
      const detail::Counts counts(run_.pool, ranks, [&](int rank) {
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

  void move_on(Bucket& bucket) {
    if (!begin_next(bucket)) bucket.with_sum([](auto& sum) { sum.progress(); });
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
    detail::observed(run_, detail::name_of_gradients, entry.over(axis),
                     [&] { under_way.emplace(detail::begun(run_.all_ranks.along(axis), sum)); });
  }

  Run<Context>& run_;
  detail::OverlappedReduction<Context> of_layers_;  // if ranks store shares of gradients
  bool is_under_way_ = false;                       // from begin() to its end or discard()
  bool shares_ = false;                             // whether a rank gets the sums of its share
  detail::SettleMoves moves_{};                     // of each bucket
  std::vector<Bucket> buckets_{};
  std::vector<std::size_t> begun_{};  // numbers of buckets, in the order in which they began
  Write write_ = Write::replace;      // how the batch adds to the gradients
};

}  // namespace shardwise::detail

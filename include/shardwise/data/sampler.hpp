#pragma once
// The order of samples, its division into batches, and of a batch over the ranks.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/philox.hpp"

namespace shardwise {

namespace detail {

/// The numbers 0, ..., count - 1 in this order. Throws argument_error for a count of 2^32 or more.
std::vector<std::uint32_t> stored_order(std::size_t count);

/// A random permutation of 0, ..., count - 1 that depends only on `count`, `seed` and `epoch`, so
/// that every rank computes the same one. Throws argument_error for a count or an epoch of 2^32 or
/// more.
///
/// Source: the shuffle of Fisher and Yates, from the front. One word chooses among at most `count`
/// places, so the relative error of its probability is less than count / 2^32.
std::vector<std::uint32_t> shuffled_order(std::size_t count, Seed seed, std::uint64_t epoch);

}  // namespace detail

/// The numbers of a batch's samples, valid until the next call of next().
struct SampleBatch {
  std::span<const std::uint32_t> whole;  ///< of all ranks: for inputs that are Invariant
  std::span<const std::uint32_t> mine;   ///< the rank's block: for Sharded<batch>, SamplesOverMesh
};

/// Divides each epoch's order into batches, and each batch into one block for each rank:
///
///     order of the epoch   3 0 8 5 | 1 9 2 7 | 4 6     the same at every number of ranks
///     2 ranks              3 0|8 5 | 1 9|2 7 | 4|6
///     3 ranks              3 0|8|5 | 1 9|2|7 | 4|6|    a block may be empty
///
/// In an epoch every sample is used exactly once over all ranks, except those of a dropped last
/// batch. Batches are the same at any number of ranks; blocks are those of `Sharded<Axis::batch>`.
/// sends    nothing: each rank computes the order
class DistributedSampler {
 public:
  /// The order of samples and the size of batches; the same on all ranks.
  struct Options {
    std::size_t batch_size = 1;  ///< samples of a batch over all ranks together
    Seed seed{};                 ///< of shuffled orders
    bool shuffles = true;        ///< each epoch; else the order is that of the samples' numbers
    bool drops_last = false;     ///< leaves out a last batch that is smaller than the others
  };

  /// The position of the sampler. It determines all later batches, with the number of samples and
  /// the options; the number of ranks does not matter.
  struct State {
    std::uint64_t seed = 0;      ///< of shuffled orders
    std::uint64_t epoch = 0;     ///< counted from 0
    std::uint64_t position = 0;  ///< samples of this epoch that are already used

    friend bool operator==(const State&, const State&) = default;
  };

  /// throws   argument_error for no samples or 2^32 and more, for a batch size of 0, and if the
  ///          only batch would be dropped
  DistributedSampler(std::size_t samples, Place place, const Options& options)
      : DistributedSampler(samples, on_data(place), options) {}

  /// On a mesh: the blocks are those of `SamplesOverMesh`. Ranks along `replica` cut a batch first,
  /// and ranks along `data` cut their blocks; ranks along other axes have the same samples.
  template <std::same_as<MeshPlace> P>  // so that {0, 2} is a Place
  DistributedSampler(std::size_t samples, const P& place, const Options& options)
      : options_(options), place_(place), order_(detail::stored_order(samples)) {
    if (samples == 0) {
      throw argument_error(
          "sampler: there are 0 samples; it needs at least one: look at the data set");
    }
    if (options.batch_size == 0) {
      throw argument_error("sampler: the batch size is 0; it must be 1 or more");
    }
    if (batches() == 0) {
      throw argument_error({"sampler: a batch of ", options.batch_size,
                            " samples is never full with ", samples,
                            " samples, and a smaller one is to be dropped; keep it "
                            "(without .drops_last), or make batches smaller"});
    }
    state_.seed = options.seed.value;
  }

  /// The next batch; after the last one of an epoch, the first one of the next epoch.
  SampleBatch next();

  ///@{
  /// Batches of a whole epoch, and those left in this one: at least one.
  std::size_t batches() const { return batches_in(order_.size()); }
  std::size_t batches_left() const { return batches_in(order_.size() - state_.position); }
  ///@}

  /// Samples of the batches that are left in this epoch, over all ranks.
  std::size_t samples_left() const {
    return std::min(order_.size() - state_.position, batches_left() * options_.batch_size);
  }

  /// The epoch of the next batch, counted from 0.
  std::uint64_t epoch() const { return state_.epoch; }

  /// Its position, for a checkpoint.
  State state() const { return state_; }

  /// Continues from `state`, which may be from a sampler with another number of ranks or batch
  /// size.
  /// throws   argument_error for a position beyond the samples or an epoch of 2^32 and more
  void set_state(const State& state);

 private:
  static MeshPlace on_data(Place place) {
    MeshPlace on;
    on[MeshAxis::data] = place;
    return on;
  }

  std::size_t batches_in(std::size_t samples) const;

  void begin_epoch_if_over();

  Options options_;
  MeshPlace place_;
  std::vector<std::uint32_t> order_;
  State state_;
  bool is_ordered_ = false;  // order_ is that of the state's seed and epoch
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

// Puts 0, ..., order.size() - 1 in a random order, see shuffled_order.
SHARDWISE_INLINE void shuffle(std::vector<std::uint32_t>& order, Seed seed, std::uint64_t epoch) {
  const RandomStream draws(seed, data_ordinal, epoch);
  std::iota(order.begin(), order.end(), 0U);
  draws.for_each_bits(0, order.size(), [&order](std::uint64_t i, std::uint32_t word) {
    std::swap(order[i], order[word * (i + 1) >> 32]);
  });
}

SHARDWISE_INLINE std::vector<std::uint32_t> stored_order(std::size_t count) {
  if (count > std::numeric_limits<std::uint32_t>::max())
    throw argument_error({"order of samples: ", count,
                          " samples are more than their 32-bit numbers can tell apart; split the "
                          "data set"});
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

SHARDWISE_INLINE std::vector<std::uint32_t> shuffled_order(std::size_t count, Seed seed,
                                                           std::uint64_t epoch) {
  std::vector<std::uint32_t> order = stored_order(count);
  detail::shuffle(order, seed, epoch);
  return order;
}

}  // namespace shardwise::detail

namespace shardwise {

SHARDWISE_INLINE SampleBatch DistributedSampler::next() {
  if (!is_ordered_ && options_.shuffles) {
    detail::shuffle(order_, Seed{state_.seed}, state_.epoch);
  }
  is_ordered_ = true;
  const std::uint32_t* const first = order_.data() + state_.position;
  const std::size_t size = std::min(options_.batch_size, order_.size() - state_.position);
  const Interval outer = block_of(size, place_[MeshAxis::replica]);
  const Interval inner = block_of(outer.size, place_[MeshAxis::data]);
  state_.position += size;
  begin_epoch_if_over();
  return {{first, size}, {first + outer.offset + inner.offset, inner.size}};
}

SHARDWISE_INLINE void DistributedSampler::set_state(const State& state) {
  if (state.position > order_.size() || state.epoch >> 32 != 0) {
    throw argument_error({"sampler: there is no position ", state.position, " in epoch ",
                          state.epoch, " of ", order_.size(),
                          " samples; is this the state of a sampler of another data set?"});
  }
  state_ = state;
  is_ordered_ = false;
  begin_epoch_if_over();
}

SHARDWISE_INLINE std::size_t DistributedSampler::batches_in(std::size_t samples) const {
  const std::size_t full = samples / options_.batch_size;
  const bool rest = samples % options_.batch_size != 0;
  return full + (rest && !options_.drops_last ? 1 : 0);
}

SHARDWISE_INLINE void DistributedSampler::begin_epoch_if_over() {
  if (batches_left() > 0) return;
  ++state_.epoch;
  state_.position = 0;
  is_ordered_ = false;
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE

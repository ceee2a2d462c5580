#pragma once
// The keys and values of tokens that a model has seen, so that it computes only those of new ones.

#include <algorithm>
#include <cstddef>
#include <new>
#include <span>
#include <utility>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/location.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/shape.hpp"

namespace shardwise {

/// What a KeyValueCache has room for.
struct CacheSize {
  std::size_t sequences = 1;  ///< at the same time
  std::size_t tokens = 0;     ///< of each
};

/// What the attentions of one model know of earlier tokens, for `Model::evaluate` of the tokens
/// that follow. Each rank has one, of its own key heads, and all ranks use theirs alike:
///
///     KeyValueCache cache({.sequences = 2, .tokens = 1024});
///     model.evaluate(prompts, {.cache = &cache});  // [2, 7]: the first 7 tokens of each
///     model.evaluate(next, {.cache = &cache});     // [2, 1]: their eighth tokens
///
/// An attention has memory for all sequences from its first evaluation on: for keys and for values
/// [sequences, tokens, key heads on the rank, size of a head], of the model's dtype, in the memory
/// of its backend. It is the model's memory, in blocks as `Pool` has them, so the model must
/// outlive the cache.
class KeyValueCache {
 public:
  /// Empty.
  /// throws   argument_error for no sequences or no tokens, and for more than can be counted;
  ///          memory_error for more sequences than a rank can list
  explicit KeyValueCache(const CacheSize& size);
  KeyValueCache(const KeyValueCache&) = delete;
  KeyValueCache& operator=(const KeyValueCache&) = delete;

  /// What it has room for.
  const CacheSize& size() const { return size_; }

  /// The tokens that it holds of a sequence.
  /// throws   argument_error for a sequence that it has no room for
  std::size_t tokens(std::size_t sequence) const {
    require(sequence);
    return held_[sequence];
  }

  /// Forgets the tokens of a sequence from number `tokens` on: all of them if it ends and another
  /// one takes its place, or those that a program takes back.
  /// throws   argument_error if the cache holds fewer
  void shorten(std::size_t sequence, std::size_t tokens = 0);

  ///@{
  /// For `Model`: `begin` says which sequences the call that follows continues, where without
  /// segments sample i continues sequence i; `end` says that this call has succeeded. `pool`
  /// identifies the model.
  /// throws   argument_error for a segment that does not begin behind the tokens that the cache
  ///          holds of its sequence, or ends behind the room for it, and for another model than
  ///          before
  detail::SegmentsOf begin(const Pool& pool, const detail::SegmentsOf& given);
  void end(const Pool& pool) {
    pool_ = &pool;
    std::swap(held_, next_);
  }
  ///@}

  ///@{
  /// For `Frame`: the segments of this call, and the rows that operand `number` of the model's
  /// merges has had in all sequences, [sequences, tokens, a row of `bytes`].
  /// throws   memory_error
  const detail::SegmentsOf& now() const { return now_; }
  void* rows(Pool& pool, std::size_t number, std::size_t bytes);
  ///@}

 private:
  void require(std::size_t sequence) const;

  Buffer taken(Pool& pool, std::size_t bytes) const {
    const detail::DescribedLocation here([this] {
      return detail::sentence(
          {"KeyValueCache of ", size_.sequences, " x ", size_.tokens, " tokens"});
    });
    const std::size_t rows = size_.sequences * size_.tokens;
    return pool.take(bytes > dynamic / rows ? dynamic : rows * bytes);
  }

  std::span<const Segment> of_samples(const Shape& batch);

  void advance(std::size_t number, const Segment& one);

  CacheSize size_;
  detail::GrowingList<std::size_t> held_;   // tokens of each sequence
  detail::GrowingList<std::size_t> next_;   // those after this call
  detail::GrowingList<Segment> samples_{};  // of a call without segments
  detail::SegmentsOf now_{};
  detail::GrowingList<Buffer> rows_{};
  const Pool* pool_ = nullptr;  // of the model whose tokens or memory it has
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE KeyValueCache::KeyValueCache(const CacheSize& size) : size_(size) {
  if (size.sequences == 0 || size.tokens == 0 || size.tokens > dynamic / size.sequences)
    throw argument_error({"KeyValueCache: ", size.sequences, " sequences of ", size.tokens,
                          " tokens: both must be at least 1, and their product a number of "
                          "64 bits. Give CacheSize{.sequences = 8, .tokens = 2048}"});
  try {
    held_ = next_ = detail::GrowingList<std::size_t>::of_size(size.sequences);
  } catch (const std::bad_alloc&) {
    throw memory_error({"KeyValueCache: no memory to list ", size.sequences, " sequences"});
  }
}

SHARDWISE_INLINE void KeyValueCache::shorten(std::size_t sequence, std::size_t tokens) {
  if (tokens > this->tokens(sequence))
    throw argument_error({"KeyValueCache: sequence ", sequence, " has ", held_[sequence],
                          " tokens, so it cannot be shortened to ", tokens});
  held_[sequence] = tokens;
}

SHARDWISE_INLINE detail::SegmentsOf KeyValueCache::begin(const Pool& pool,
                                                         const detail::SegmentsOf& given) {
  if (pool_ != nullptr && pool_ != &pool)
    throw argument_error(
        "KeyValueCache: it holds keys and values of another model. Make one cache for each "
        "model");
  const detail::SegmentsOf all{given.list.empty() ? of_samples(given.batch) : given.list,
                               given.batch};
  std::copy(held_.begin(), held_.end(), next_.begin());
  for (std::size_t i = 0; i < all.list.size(); ++i) advance(i, all.list[i]);
  now_ = all;
  return all;
}

SHARDWISE_INLINE void* KeyValueCache::rows(Pool& pool, std::size_t number, std::size_t bytes) {
  while (rows_.size() <= number) rows_.add({});
  if (rows_[number].data() == nullptr) rows_[number] = taken(pool, bytes);
  pool_ = &pool;
  return rows_[number].data();
}

SHARDWISE_INLINE void KeyValueCache::require(std::size_t sequence) const {
  if (sequence >= size_.sequences)
    throw argument_error({"KeyValueCache: there is no sequence ", sequence, ": it has room for ",
                          size_.sequences, ", numbered from 0"});
}

SHARDWISE_INLINE std::span<const Segment> KeyValueCache::of_samples(const Shape& batch) {
  const std::size_t position = detail::sequence_position(batch);
  const std::size_t samples = batch.elements(0, position), length = batch[position].extent();
  if (samples > size_.sequences)
    throw argument_error({"KeyValueCache: a batch ", batch, " without segments has ", samples,
                          " sequences, and there is room for ", size_.sequences});
  while (samples_.size() < samples) samples_.add({});
  for (std::size_t i = 0; i < samples; ++i) samples_[i] = {i * length, length, held_[i], i};
  return {samples_.begin(), length == 0 ? 0 : samples};
}

SHARDWISE_INLINE void KeyValueCache::advance(std::size_t number, const Segment& one) {
  require(one.sequence);
  std::size_t& tokens = next_[one.sequence];
  if (one.position != tokens)
    throw argument_error({"KeyValueCache: segment ", number, " begins at position ", one.position,
                          " of sequence ", one.sequence, ", of which there are ", tokens,
                          " tokens: begin there, or forget some with `shorten`"});
  if (one.rows > size_.tokens - tokens)
    throw argument_error({"KeyValueCache: segment ", number, " adds ", one.rows,
                          " tokens to sequence ", one.sequence, ", which has ", tokens,
                          " of at most ", size_.tokens, ": make a larger cache"});
  tokens += one.rows;
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE

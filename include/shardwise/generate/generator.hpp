#pragma once
// Text from a model of tokens: sequences that begin and end independently of each other, of which
// each step computes one more token.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/generate/sampler.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/layouts.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/key_value_cache.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/redistribute/run.hpp"

namespace shardwise {

/// A token that a Generator chose.
struct Generated {
  std::size_t sequence = 0;  ///< the number of the sequence, which `Generator::add` returned
  std::int32_t id = 0;       ///< of the token, which is now the last one of the sequence

  friend bool operator==(const Generated&, const Generated&) = default;
};

namespace detail {

/// Whether its only input are token ids, and it has one output.
template <class M>
concept ReadsTokens = std::same_as<typename M::input_view, View<const std::int32_t, Invariant>> &&
    Layout<typename M::output_layout>;

}  // namespace detail

/// Writes text with a model from token ids [batch, sequence] to logits [batch, sequence,
/// vocabulary], or to those of the last tokens, [batch, vocabulary]: see `last_logits`, with which
/// ranks make and send no logits of prompts. Sequences may begin and end at any time:
///
///     Generator generator(model, {.sequences = 8, .tokens = 2048}, {.temperature = 0.8});
///     const std::size_t number = generator.add(prompt);
///     for (const Generated& one : generator.step()) ...  // a token of each sequence
///     generator.end(number);
///
/// A step is one batch of the last tokens of sequences that go on and of the prompts of new ones.
///
/// The tokens of a sequence depend on its prompt, its number and the options, and not on the other
/// sequences, as far as the model's arithmetic gives a row the same numbers in every batch. Every
/// rank makes a generator, and calls its members in the same order with equal arguments; each
/// chooses the tokens itself. The model must outlive the generator, and keep its weights while
/// there are sequences. After the first steps with a number of sequences, steps that read no
/// prompts allocate no memory, but for scratch memory of OneDnn where the tokens of a sequence
/// exceed a power of two.
///
/// Where ranks compare their calls, the first one of each batch also compares seed and sizes of the
/// model, the options of sampling, and tokens and sequences: ranks that differ would
/// feed other tokens to one model.
/// layout   ids Invariant; logits Invariant, or in a layout that can become it
template <class M>
class Generator {
  static_assert(detail::ReadsTokens<M>,
                "a Generator writes with a model whose only input are token ids, a View<const "
                "std::int32_t, Invariant>, and whose only output are logits, on ranks that are no "
                "mesh: Ends<Invariant, Invariant>.");

 public:
  /// `size` is what it has room for: so many sequences at the same time, of so many tokens each,
  /// the prompt and what follows it. `piece` bounds how long sequences wait for the prompts of
  /// others: a batch has at most so many tokens of prompts, and the last token of each sequence.
  /// throws   argument_error for a piece of no tokens, as KeyValueCache for `size`, and as Sampler
  ///          for `sampling`
  Generator(M& model, const CacheSize& size, const Sampling& sampling = {}, std::size_t piece = 256)
      : model_(model),
        cache_(size),
        sampler_(sampling),
        piece_(piece),
        compares_(model.run().all_ranks.size() > 1 &&
                  detail::compares_calls(model.run().all_ranks)),
        of_model_(model.fingerprint()) {
    if (piece == 0)
      throw argument_error(
          "Generator: prompts are to be read in pieces of 0 tokens; a piece has at least one");
    detail::add_options(options_, sampling);
    options_.add("piece", piece);
  }

  /// Begins a sequence with these tokens, which the next steps read, and returns its number.
  /// Numbers count from 0 and are not used again.
  ///
  /// sends    nothing
  /// throws   argument_error for a prompt without tokens, or so long that no token could follow,
  ///          and if all places for sequences are taken; memory_error. It then has no new sequence
  std::size_t add(std::span<const std::int32_t> prompt) {
    require_room(prompt.size());
    active_.push_back({next_, free_place(), with_room(prompt)});
    return next_++;
  }

  /// Adds a token to each sequence whose prompt is read to its end, and returns these tokens in the
  /// order of their sequences' numbers. Prompts are read in that order too, and at most `piece` of
  /// their tokens in a step, unless no sequence would get a token: then batch after batch, until
  /// one does. The result is valid until the next step; it is empty if there are no sequences.
  ///
  /// sends    as Model::evaluate for each batch; if logits are not Invariant, also what makes them
  ///          so
  /// throws   collective_error if other ranks read other tokens, or have other sequences, options
  ///          or models; argument_error if a sequence has as many tokens as there is room for;
  ///          shape_error for an output that is not such logits; as Model::evaluate, and as
  ///          Sampler::pick. No sequence then has a new token. A prompt with an id that the model
  ///          does not know stops the steps that read it, until its sequence is ended; on a device,
  ///          where ids are not looked at, with a numeric_error for its first token
  std::span<const Generated> step() {
    chosen_.clear();
    for (const Active& one : active_) require_place_for_token(one);
    while (chosen_.empty() && !active_.empty()) read_batch();
    for (std::size_t i = 0, next = 0; next < chosen_.size(); ++i)
      if (is_read(active_[i])) active_[i].tokens.push_back(chosen_[next++].id);
    return chosen_;
  }

  /// Ends a sequence; another one may take its place.
  /// throws   argument_error for a number that no sequence has, or whose sequence has ended
  void end(std::size_t number) {
    const auto ended = active_.begin() + (&of(number) - active_.data());
    cache_.shorten(ended->place);
    active_.erase(ended);
  }

  /// The prompt and what was generated, valid until the next step, or the end of the sequence.
  /// throws   argument_error for a number that no sequence has, or whose sequence has ended
  std::span<const std::int32_t> tokens(std::size_t number) const { return of(number).tokens; }

  /// What it has room for.
  const CacheSize& size() const { return cache_.size(); }

 private:
  using Logits = typename M::output_view;
  using T = typename M::dtype;

  struct Active {
    std::size_t number;
    std::size_t place;  // of the sequence in the cache
    std::vector<std::int32_t> tokens;
  };

  const Active& of(std::size_t number) const {
    const auto found = std::find_if(active_.begin(), active_.end(),
                                    [&](const Active& one) { return one.number == number; });
    if (found != active_.end()) return *found;
    throw argument_error({"Generator: sequence ", number,
                          number < next_ ? " has ended" : " was never added",
                          "; numbers are those that add returned"});
  }

  void require_room(std::size_t prompt) const {
    const auto [sequences, tokens] = cache_.size();
    if (prompt == 0)
      throw argument_error(
          "Generator: a prompt has no tokens; give it one at least, such as the one with which all "
          "texts begin");
    if (prompt >= tokens)
      throw argument_error({"Generator: behind a prompt of ", prompt,
                            " tokens there is room for none, since a sequence has at most ", tokens,
                            "; shorten it, or give a larger CacheSize"});
    if (active_.size() == sequences)
      throw argument_error({"Generator: all ", sequences,
                            " places for sequences are taken; end one first, or give a larger "
                            "CacheSize"});
  }

  /// The prompt, in memory for all tokens that may follow.
  std::vector<std::int32_t> with_room(std::span<const std::int32_t> prompt) const try {
    std::vector<std::int32_t> tokens;
    tokens.reserve(cache_.size().tokens);
    tokens.assign(prompt.begin(), prompt.end());
    return tokens;
  } catch (const std::exception&) {
    throw memory_error({"Generator: no memory for the ", cache_.size().tokens,
                        " tokens of a sequence; give a smaller CacheSize"});
  }

  void require_place_for_token(const Active& one) const {
    if (one.tokens.size() < cache_.size().tokens) return;
    throw argument_error({"Generator: sequence ", one.number, " has ", one.tokens.size(),
                          " tokens, and there is no room for more; end it before the next step, or "
                          "give a larger CacheSize"});
  }

  /// The first place in the cache that no sequence has.
  std::size_t free_place() const {
    std::size_t place = 0;
    const auto has_it = [&](const Active& one) { return one.place == place; };
    while (std::any_of(active_.begin(), active_.end(), has_it)) ++place;
    return place;
  }

  bool is_read(const Active& one) const { return cache_.tokens(one.place) == one.tokens.size(); }

  /// The tokens of a sequence in front of its last one that a batch reads, with room for so many.
  std::size_t of_prompt(const Active& one, std::size_t room) const {
    return std::min(one.tokens.size() - 1 - cache_.tokens(one.place), room);
  }

  /// The batch of a step. Of each sample the logits of the last token are used, and with
  /// `last_logits` there are no others: so a sample ends with the last token of a sequence. In
  /// front of it are tokens of prompts, in equal shares, whatever sequences they are of. So there
  /// are fewer rows of padding than samples.
  struct Batch {
    std::size_t of_prompts = 0;  // tokens in front of the last one of their sequence
    std::size_t last = 0;        // tokens that are the last one

    std::size_t samples() const { return std::max<std::size_t>(last, 1); }
    std::size_t share() const { return (of_prompts + samples() - 1) / samples(); }
    std::size_t length() const { return share() + (last == 0 ? 0 : 1); }
    std::size_t row_of_prompts(std::size_t token) const {
      return token / share() * length() + token % share();
    }
    std::size_t last_row(std::size_t sample) const { return sample * length() + share(); }
  };

  /// What the next batch reads.
  Batch next_batch() const {
    Batch batch;
    for (const Active& one : active_) {
      const std::size_t tokens = of_prompt(one, piece_ - batch.of_prompts);
      batch.of_prompts += tokens;
      if (cache_.tokens(one.place) + tokens + 1 == one.tokens.size()) ++batch.last;
    }
    return batch;
  }

  /// Reads a batch, and chooses a token of each sequence that is then read to its end.
  void read_batch() {
    const Batch batch = next_batch();
    segments_.clear();
    ids_.assign(batch.samples() * batch.length(), 0);
    put_tokens(batch);
    const auto logits = run(batch);
    if (batch.last == 0) return;
    try {
      choose(whole(logits).view(), batch);
    } catch (...) {
      chosen_.clear();
      for (auto one = segments_.rbegin(); one != segments_.rend(); ++one)
        cache_.shorten(one->sequence, one->position);
      throw;
    }
  }

  void put_tokens(const Batch& batch) {
    std::size_t of_prompts = 0, last = 0;
    for (const Active& one : active_) {
      std::size_t position = cache_.tokens(one.place);
      const std::size_t end = of_prompts + of_prompt(one, piece_ - of_prompts);
      while (of_prompts < end) {
        const std::size_t left = batch.share() - of_prompts % batch.share();  // in the sample
        const std::size_t rows = std::min(end - of_prompts, left);
        put(one, {batch.row_of_prompts(of_prompts), rows, position, one.place});
        of_prompts += rows;
        position += rows;
      }
      if (position + 1 == one.tokens.size())
        put(one, {batch.last_row(last++), 1, position, one.place});
    }
  }

  void put(const Active& of, const Segment& one) {
    segments_.push_back(one);
    std::copy_n(of.tokens.data() + one.position, one.rows, ids_.data() + one.row);
  }

  /// The output for the tokens of a batch.
  Logits run(const Batch& batch) {
    auto& model_run = model_.run();
    const detail::SetMeanwhile compared(model_run.step.given,
                                        compares_ ? given() : detail::GivenAlike{});
    const Shape shape{{Axis::batch, batch.samples()}, {Axis::sequence, batch.length()}};
    const View<const std::int32_t, Invariant> here(ids_.data(), shape, model_run.place());
    const auto there = model_.to_device(here);
    return model_.evaluate(there.view(), {.segments = segments_, .cache = &cache_});
  }

  /// What all ranks must have alike for a batch: the calls of the model compare it.
  detail::GivenAlike given() const {
    std::uint32_t inputs = static_cast<std::uint32_t>(next_);
    for (const std::int32_t id : ids_)
      inputs = detail::mixed(inputs, static_cast<std::uint32_t>(id));
    for (const Segment& one : segments_)
      for (const std::size_t number : {one.row, one.rows, one.position, one.sequence})
        inputs = detail::mixed(inputs, static_cast<std::uint32_t>(number));
    return {.seed = detail::mixed_halves(model_.run().seed.value),
            .model = of_model_,
            .inputs = inputs,
            .options = options_.hash(),
            .all_options = &options_};
  }

  /// The logits on every rank.
  Value<T, Invariant> whole(const Logits& logits) {
    if constexpr (std::same_as<typename M::output_layout, Invariant>) {
      return Value<T, Invariant>(logits);
    } else {
      auto& run = model_.run();
      Value<T, Invariant> all(run.pool, logits.global(), run.place());
      redistribute(run.backend, run.ranks, run.pool, logits, all.writable());
      return all;
    }
  }

  /// A token of each sequence that is read to its end, by the logits of its last token.
  void choose(const View<const T, Invariant>& logits, const Batch& batch) {
    const Shape& shape = logits.global();
    const std::size_t vocabulary = shape.rank() < 2 ? 0 : shape.back().extent();
    const bool of_all = shape.rank() == 3 && shape[1] == Dim{Axis::sequence, batch.length()};
    if (shape.rank() != (of_all ? 3 : 2) || shape[0] != Dim{Axis::batch, batch.last})
      throw shape_error({"Generator: for ", batch.length(), " tokens of each of ", batch.last,
                         " samples the model gives ", shape,
                         ", but it must give logits [batch, sequence, vocabulary], or [batch, "
                         "vocabulary] as with last_logits"});
    for (const Active& one : active_) {
      if (!is_read(one)) continue;
      const std::size_t sample = chosen_.size();
      const std::size_t row = of_all ? batch.last_row(sample) : sample;
      const auto of_last = on_host(logits.span().subspan(row * vocabulary, vocabulary));
      chosen_.push_back({one.number, sampler_.pick(of_last, one.number, one.tokens.size())});
    }
  }

  std::span<const T> on_host(std::span<const T> logits) {
    if constexpr (DeviceBackend<typename M::backend_type>) {
      on_host_.resize(logits.size());
      detail::to_host(model_.backend(), logits.data(), logits.size(), on_host_.data());
      return on_host_;
    } else {
      return logits;
    }
  }

  M& model_;
  KeyValueCache cache_;
  Sampler sampler_;
  std::size_t piece_;
  bool compares_;  // whether ranks compare their calls
  std::uint32_t of_model_;
  detail::GivenOptions options_{};
  std::size_t next_ = 0;
  std::vector<Active> active_{};  // in the order of their numbers
  ///@{
  /// Of a call; kept for their memory.
  std::vector<std::int32_t> ids_{};
  std::vector<Segment> segments_{};
  std::vector<Generated> chosen_{};
  std::vector<T> on_host_{};
  ///@}
};

}  // namespace shardwise

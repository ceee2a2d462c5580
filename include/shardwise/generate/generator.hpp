#pragma once
// Text from a model of tokens: sequences that begin and end independently of each other, of which
// each step computes one more token.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>
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
/// vocabulary], or to those of the last tokens, [batch, vocabulary], see `last_logits`. Sequences
/// may begin and end at any time:
///
///     Generator generator(model, {.sequences = 8, .tokens = 2048}, {.temperature = 0.8});
///     const std::size_t number = generator.add(prompt);
///     for (const Generated& one : generator.step()) ...  // a token of each sequence
///     generator.end(number);
///
/// The tokens of a sequence depend on its prompt, its number and the options, and not on the other
/// sequences, as far as the model's arithmetic gives a row the same numbers in every batch. Every
/// rank makes a generator, and calls its members in the same order with equal arguments; each
/// chooses the tokens itself. The model must outlive the generator, and keep its weights while
/// there are sequences. After the first steps with a number of sequences, steps allocate no memory,
/// but for scratch memory of OneDnn where the tokens of a sequence exceed a power of two.
/// Where ranks compare their calls, the first call of the model in each step also compares seed and
/// sizes of the model, the options of sampling, and tokens and sequences: ranks that differ would
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
  /// the prompt and what follows it. A prompt is run in pieces of at most `piece` tokens.
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
          "Generator: prompts are to be run in pieces of 0 tokens; a piece has at least one");
    detail::add_options(options_, sampling);
    options_.add("piece", piece);
  }

  /// Begins a sequence with these tokens, and returns its number. Numbers count from 0 and are not
  /// used again. The model reads all of the prompt but its last token, which the next step reads.
  /// sends    as Model::evaluate for each piece
  /// throws   collective_error if other ranks add another prompt, or have other sequences, options
  ///          or models; argument_error for a prompt without tokens, or so long that no token could
  ///          follow, and if all places for sequences are taken; memory_error; as Model::evaluate.
  ///          There is then no new sequence
  std::size_t add(std::span<const std::int32_t> prompt) {
    require_room(prompt.size());
    Active added{next_, free_place(), with_room(prompt)};
    active_.reserve(active_.size() + 1);
    read(prompt.first(prompt.size() - 1), added.place);
    active_.push_back(std::move(added));
    return next_++;
  }

  /// Adds a token to each sequence, and returns them in the order of their sequences' numbers. The
  /// result is valid until the next step; it is empty if there are no sequences.
  /// sends    as Model::evaluate for one token of each sequence; if logits are not Invariant, also
  ///          what makes them so
  /// throws   argument_error if a sequence has as many tokens as there is room for; shape_error for
  ///          an output that is not such logits; as Model::evaluate, and as
  ///          Sampler::pick. No sequence then has a new token
  std::span<const Generated> step() {
    chosen_.clear();
    if (active_.empty()) return chosen_;
    ids_.clear();
    segments_.clear();
    for (const Active& one : active_) {
      require_place_for_token(one);
      segments_.push_back({segments_.size(), 1, one.tokens.size() - 1, one.place});
      ids_.push_back(one.tokens.back());
    }
    const auto logits = run(ids_, active_.size());
    try {
      choose(whole(logits).view());
    } catch (...) {
      for (const Active& one : active_) cache_.shorten(one.place, one.tokens.size() - 1);
      throw;
    }
    for (std::size_t i = 0; i < active_.size(); ++i) active_[i].tokens.push_back(chosen_[i].id);
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

  /// Reads the first tokens of the sequence at this place.
  void read(std::span<const std::int32_t> tokens, std::size_t place) try {
    for (std::size_t begin = 0; begin < tokens.size(); begin += piece_) {
      const auto some = tokens.subspan(begin, std::min(piece_, tokens.size() - begin));
      segments_.assign(1, {0, some.size(), begin, place});
      run(some, 1);
    }
  } catch (...) {
    cache_.shorten(place);
    throw;
  }

  /// The output for these ids of `samples` sequences, of which `segments_` says the places.
  Logits run(std::span<const std::int32_t> ids, std::size_t samples) {
    auto& model_run = model_.run();
    const detail::SetMeanwhile compared(model_run.step.given,
                                        compares_ ? given(ids) : detail::GivenAlike{});
    const Shape shape{{Axis::batch, samples}, {Axis::sequence, ids.size() / samples}};
    const View<const std::int32_t, Invariant> here(ids.data(), shape, model_.run().place());
    const auto there = model_.to_device(here);
    return model_.evaluate(there.view(), {.segments = segments_, .cache = &cache_});
  }

  /// What all ranks must have alike for these ids: the calls of the model compare it.
  detail::GivenAlike given(std::span<const std::int32_t> ids) const {
    std::uint32_t inputs = static_cast<std::uint32_t>(next_);
    for (const std::int32_t id : ids)
      inputs = detail::mixed(inputs, static_cast<std::uint32_t>(id));
    for (const Segment& one : segments_)
      for (const std::size_t number : {one.row, one.position, one.sequence})
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

  /// A token of each sequence by its row of logits.
  void choose(const View<const T, Invariant>& logits) {
    const Shape& shape = logits.global();
    if (shape.rank() < 2 || shape[0] != Dim{Axis::batch, active_.size()} ||
        shape.elements() != active_.size() * shape.back().extent())
      throw shape_error({"Generator: for one token of ", active_.size(),
                         " sequences the model gives ", shape,
                         ", but it must give logits [batch, sequence, vocabulary], or [batch, "
                         "vocabulary] as with last_logits"});
    const std::span<const T> rows = on_host(logits);
    const std::size_t vocabulary = rows.size() / active_.size();
    for (const Active& one : active_) {
      const auto row = rows.subspan(chosen_.size() * vocabulary, vocabulary);
      chosen_.push_back({one.number, sampler_.pick(row, one.number, one.tokens.size())});
    }
  }

  std::span<const T> on_host(const View<const T, Invariant>& logits) {
    if constexpr (DeviceBackend<typename M::backend_type>) {
      on_host_.resize(logits.size());
      detail::to_host(model_.backend(), logits.data(), logits.size(), on_host_.data());
      return on_host_;
    } else {
      return logits.span();
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

#pragma once
// The mark of a call: where in its program a rank makes it, and what the rank was given for it. So
// ranks notice that one of them left out a call, although its next call is equal.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/comm/given_options.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/location.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise {

/// The phases of a model's step, in their order.
enum class Phase : std::uint8_t { none, evaluate, forward, loss, backward, settle, finish };

/// "forward".
constexpr std::string_view name(Phase phase) {
  constexpr std::string_view names[] = {"",         "evaluate", "forward", "loss",
                                        "backward", "settle",   "finish"};
  return names[static_cast<std::size_t>(phase)];
}

namespace detail {

/// Fingerprints of what all ranks of a model must be given alike; 0 for what is not compared.
struct GivenAlike {
  std::uint32_t seed = 0;     ///< of the model
  std::uint32_t model = 0;    ///< its type, and the names and sizes of its parameters
  std::uint32_t inputs = 0;   ///< those that are `Invariant` or `Replicated`, or slices of such
  std::uint32_t targets = 0;  ///< the same
  std::uint32_t options = 0;  ///< of the step's optimizer, of the step and of its loss
  const detail::GivenOptions* all_options = nullptr;  ///< on this rank; not compared

  friend bool operator==(const GivenAlike& a, const GivenAlike& b) {
    return a.seed == b.seed && a.model == b.model && a.inputs == b.inputs &&
           a.targets == b.targets && a.options == b.options;
  }
};

}  // namespace detail

/// Where in its program a rank makes a call. In a collective it must be the same on all ranks; a
/// message compares step and batch only, because its two ranks may be at different layers.
struct Mark {
  static constexpr std::size_t most_numbers = 6;  ///< that a path holds

  std::uint32_t step = 0;     ///< of the model or the caller; 0 if there is none
  std::uint16_t batch = 0;    ///< batches of the step before this one
  Phase phase = Phase::none;  ///< of the model
  bool is_callers = false;    ///< whether `mark_step` has set the step
  std::uint8_t depth = 0;     ///< compositions around the part
  std::array<std::uint16_t, most_numbers> path{};  ///< the part's number in each of them
  std::uint32_t path_digest = 0;                   ///< of all numbers, also if they are more
  std::string (*part)() = nullptr;                 ///< the name of the part
  detail::GivenAlike given{};                      ///< what this rank was given

  /// The numbers of the path that are known.
  constexpr std::size_t numbers() const { return depth < most_numbers ? depth : most_numbers; }
};

namespace detail {

/// The mark of the calls that this thread makes now.
inline constinit thread_local Mark current_mark{};
/// The last step in which this thread made calls, but for evaluation; 0 without one.
inline constinit thread_local std::uint32_t last_step = 0;

/// While it lives, calls of this thread have the mark of a phase. Not inlined at the many places of
/// a program that enter a phase or a part.
class MarkedPhase {
 public:
  MarkedPhase(std::uint32_t step, std::uint16_t batch, Phase phase, const GivenAlike& given);
  MarkedPhase(const MarkedPhase&) = delete;
  MarkedPhase& operator=(const MarkedPhase&) = delete;
  ~MarkedPhase();

 private:
  Mark before_;
};

/// While it lives, calls of this thread say that the rank was given this.
class MarkedGiven {
 public:
  explicit MarkedGiven(const GivenAlike& given) : before_(current_mark.given) {
    current_mark.given = given;
  }
  MarkedGiven(const MarkedGiven&) = delete;
  MarkedGiven& operator=(const MarkedGiven&) = delete;
  ~MarkedGiven() { current_mark.given = before_; }

 private:
  GivenAlike before_;
};

/// A part of a model, by its number and its name, or by the number of a time that it is repeated.
struct NumberedPart {
  std::size_t number;
  std::string (*name)();
  bool is_composition;
  bool is_repeated = false;
};

/// While it lives, this thread is in a part of a model, and its calls have the mark of that.
class MarkedPart : public Location {
 public:
  explicit MarkedPart(const NumberedPart& part);
  ~MarkedPart();

 private:
  static std::string numbered(const Location& here);
  static std::string repeated(const Location& here);

  std::uint32_t digest_before_;
  std::string (*part_before_)();
};

/// "batch 1"; after the last batch of a step the phase, "settle".
std::string batch_or_phase(const Mark& mark);

/// The place in the model: "0/3: RowParallelLinear, backward"; empty outside of models.
[[gnu::cold]] std::string place_in_model(const Mark& mark);

}  // namespace detail

/// "step 12, 0/3: RowParallelLinear, backward"; empty for calls without a mark.
std::string to_string(const Mark& mark);

/// Marks the calls that this thread makes from now on as calls of step `number` of the caller's own
/// count, those of models too. Then ranks whose next calls are equal, but in different steps, get a
/// collective_error that says who left out what. Call it on every rank, at the same places:
///
///     for (std::uint64_t step = 1; step <= steps; ++step) {
///       mark_step(step);
///       ranks.all_reduce<double>(force, force);
///     }
///     mark_step(0);
///
/// 0 ends it: then only the calls of models are marked, by the number of the model's own step.
/// Until then that number is not compared: give each step of a model a number of its own. Numbers
/// are compared modulo 2^32. Sends nothing, and costs nothing that can be measured.
inline void mark_step(std::uint64_t number) noexcept {
  detail::current_mark.step = static_cast<std::uint32_t>(number);
  detail::current_mark.is_callers = number != 0;
  if (number != 0) detail::last_step = detail::current_mark.step;
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

[[gnu::noinline]] SHARDWISE_INLINE MarkedPhase::MarkedPhase(std::uint32_t step, std::uint16_t batch,
                                                            Phase phase, const GivenAlike& given)
    : before_(current_mark) {
  Mark& mark = current_mark;
  if (!mark.is_callers) mark.step = step;
  if (phase != Phase::evaluate) last_step = mark.step;
  mark.batch = batch;
  mark.phase = phase;
  mark.depth = 0;
  mark.path_digest = 0;
  mark.part = nullptr;
  mark.given = given;
}

[[gnu::noinline]] SHARDWISE_INLINE MarkedPhase::~MarkedPhase() { current_mark = before_; }

[[gnu::noinline]] SHARDWISE_INLINE MarkedPart::MarkedPart(const NumberedPart& part)
    : Location(part.is_repeated ? &repeated : &numbered, static_cast<int>(part.number), part.name,
               part.is_composition),
      digest_before_(current_mark.path_digest),
      part_before_(current_mark.part) {
  Mark& mark = current_mark;
  if (mark.depth < Mark::most_numbers)
    mark.path[mark.depth] = static_cast<std::uint16_t>(part.number);
  ++mark.depth;
  mark.path_digest = mixed(mark.path_digest, static_cast<std::uint32_t>(part.number));
  mark.part = part.name;
}

[[gnu::noinline]] SHARDWISE_INLINE MarkedPart::~MarkedPart() {
  --current_mark.depth;
  current_mark.path_digest = digest_before_;
  current_mark.part = part_before_;
}

SHARDWISE_INLINE std::string MarkedPart::numbered(const Location& here) {
  return sentence({here.number, ": ", here.name()});
}

SHARDWISE_INLINE std::string MarkedPart::repeated(const Location& here) {
  return sentence({"time ", here.number});
}

SHARDWISE_INLINE std::string batch_or_phase(const Mark& mark) {
  return mark.phase < Phase::settle ? sentence({"batch ", mark.batch})
                                    : std::string(name(mark.phase));
}

SHARDWISE_INLINE std::string place_in_model(const Mark& mark) {
  std::string text;
  for (std::size_t i = 0; i < mark.numbers(); ++i) append(text, {i == 0 ? "" : "/", mark.path[i]});
  if (mark.depth > Mark::most_numbers) text += "/...";
  if (mark.part != nullptr) append(text, {text.empty() ? "" : ": ", mark.part(), ", "});
  return text.append(name(mark.phase));
}

}  // namespace shardwise::detail

namespace shardwise {

SHARDWISE_INLINE std::string to_string(const Mark& mark) {
  std::string place = detail::place_in_model(mark);
  if (mark.step == 0) return place;
  const bool in_later_batch = mark.batch > 0 && mark.phase < Phase::settle;
  return detail::sentence({"step ", mark.step,
                           in_later_batch ? detail::sentence({", batch ", mark.batch}) : "",
                           place.empty() ? "" : ", ", place});
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE

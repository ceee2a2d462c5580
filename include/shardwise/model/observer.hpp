#pragma once
// Who looks on while a model runs, and what an onlooker is told.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include "shardwise/model/collectives.hpp"

namespace shardwise {

/// Something that a rank does from one moment to another.
struct Work {
  /// Of which sort.
  enum class Kind : std::uint8_t {
    phase,      ///< of a step: forward, loss, backward, settle, ...
    part,       ///< whatever happens in part `number` of a composition, what is sent for it too
    compute,    ///< a layer's own forward or backward, with what is sent inside of it
    move,       ///< a redistribution that needs no other rank
    collective  ///< what needs all ranks, with the time spent waiting for them
  };

  Kind kind = Kind::phase;          ///< of these
  std::string (*name)() = nullptr;  ///< makes the name of the phase, layer or redistribution
  std::size_t number = 0;           ///< of a part
  Collective collective{};          ///< what the plan says of a collective
};

/// A phase of a step, of the model's or of the caller's own:
///
///     const Observation here(model.observer(), phase([] { return std::string("load"); }));
constexpr Work phase(std::string (*name)()) { return {Work::Kind::phase, name, 0, {}}; }

namespace detail::phases {

///@{
/// Those of the model and of a Step.
inline constexpr Work forward = phase([] { return std::string("forward"); });
inline constexpr Work evaluate = phase([] { return std::string("evaluate"); });
inline constexpr Work loss = phase([] { return std::string("loss"); });
inline constexpr Work backward = phase([] { return std::string("backward"); });
inline constexpr Work settle = phase([] { return std::string("settle"); });
inline constexpr Work finish = phase([] { return std::string("finish"); });
///@}

}  // namespace detail::phases

/// An onlooker of one rank. The model calls `begin(work)` and `end()` in pairs, each inside of the
/// one before it or behind it, from the thread of its rank; whatever is thrown, `end()` is called.
/// A model makes its observer without arguments, and lends it: `model.observer()`. What is sent
/// outside of steps and evaluation (`gather`, `set`, checkpoints) is not told.
///
/// valid: `Unobserved`, `Tracer`      invalid: `int`, one whose `end` may throw
template <class O>
concept Observer = std::default_initializable<O> && requires(O& observer, const Work& work) {
  observer.begin(work);
  { observer.end() }
  noexcept;
};

/// Nobody looks on. Nothing is stored, and nothing is made for anybody to see.
struct Unobserved {
  ///@{
  /// As `Observer` says.
  constexpr void begin(const Work&) const {}
  constexpr void end() const noexcept {}
  ///@}
};

/// Tells an observer of some work while it lives. Work that takes long to describe is given as a
/// `describe()` that returns it, which is not called for Unobserved.
template <Observer O>
class Observation {
 public:
  /// Begins this work.
  Observation(O& observer, const Work& work) : observer_(observer) { observer_.begin(work); }
  /// Begins the work that `describe()` gives.
  template <class Describe>
  requires(!std::same_as<Describe, Work>) Observation(O& observer, const Describe& describe)
      : Observation(observer, describe()) {}
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;
  ~Observation() { observer_.end(); }

 private:
  O& observer_;
};

template <>
class [[maybe_unused]] Observation<Unobserved> {
 public:
  constexpr Observation(Unobserved&, const Work&) {}
  template <class Describe>
  requires(!std::same_as<Describe, Work>) constexpr Observation(Unobserved&, const Describe&) {}
};

/// Of the observer that is given.
template <class O, class Described>
Observation(O&, const Described&) -> Observation<O>;

}  // namespace shardwise

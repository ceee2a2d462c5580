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
///     const auto load = [] { return phase([] { return std::string("load"); }); };
///     const Observation here(model.observer(), load);
constexpr Work phase(std::string (*name)()) { return {Work::Kind::phase, name, 0, {}}; }

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

/// Tells an observer of some work while it lives. `describe()` gives the Work; it is not called for
/// Unobserved.
template <Observer O>
class Observation {
 public:
  /// Begins the work that `describe()` gives.
  template <class Describe>
  Observation(O& observer, Describe&& describe) : observer_(observer) {
    observer_.begin(describe());
  }
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;
  ~Observation() { observer_.end(); }

 private:
  O& observer_;
};

template <>
class [[maybe_unused]] Observation<Unobserved> {
 public:
  template <class Describe>
  constexpr Observation(Unobserved&, Describe&&) {}
};

/// Of the observer that is given.
template <class O, class Describe>
Observation(O&, Describe&&) -> Observation<O>;

}  // namespace shardwise

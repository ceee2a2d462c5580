#pragma once
// Observers of a model's run, and the work that they see.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>

#include "shardwise/comm/mark.hpp"
#include "shardwise/model/collective_list.hpp"

namespace shardwise {

/// Work of a rank with a begin and an end.
struct Work {
  /// The kind of the work.
  enum class Kind : std::uint8_t {
    phase,      ///< of a step: forward, loss, backward, settle, ...
    part,       ///< all work of part `number` of a composition, its collectives included
    compute,    ///< a layer's own forward or backward, with its exchanges
    move,       ///< a redistribution without communication
    collective  ///< communication of a group, including the time in which a rank waits for others
  };

  Kind kind = Kind::phase;          ///< the kind
  std::string (*name)() = nullptr;  ///< makes the name of the phase, layer or redistribution
  std::size_t number = 0;           ///< of a part
  Collective collective{};  ///< as in the plan, but of the tensor that the rank's group shares
};

/// A phase of a step, of the model's or of the caller's own:
///
///     const Observation here(model.observer(), phase([] { return std::string("load"); }));
constexpr Work phase(std::string (*name)()) { return {Work::Kind::phase, name, 0, {}}; }

namespace detail {

/// A phase of the model or of a Step.
template <Phase P>
constexpr Work work_of() {
  return phase([] { return std::string(name(P)); });
}

}  // namespace detail

/// An observer of one rank. The model calls `begin(work)` and `end()` in pairs, nested or one after
/// another, from the thread of its rank; `end()` is called after an exception too. A model makes
/// its observer without arguments: `model.observer()`. Messages outside of steps and evaluation
/// (`gather`, `set`, checkpoints) are not reported.
///
/// valid: `Unobserved`, `Tracer`      invalid: `int`, one whose `end` may throw
template <class O>
concept Observer = std::default_initializable<O> && requires(O& observer, const Work& work) {
  observer.begin(work);
  { observer.end() }
  noexcept;
};

/// No observer. Nothing is stored, and no description is made.
struct Unobserved {
  ///@{
  /// As `Observer` says.
  constexpr void begin(const Work&) const {}
  constexpr void end() const noexcept {}
  ///@}
};

namespace detail {

/// Reports work to an observer while it lives. If a description of the work takes time, it is given
/// as a `describe()` that returns it, and that is not called for Unobserved.
template <Observer O>
class Observation {
 public:
  /// Begins this work.
  Observation(O& observer, const Work& work) : observer_(observer) { observer_.begin(work); }
  /// Begins the work that `describe()` returns.
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

/// Deduces the type of the given observer.
template <class O, class Described>
Observation(O&, const Described&) -> Observation<O>;

}  // namespace detail

}  // namespace shardwise

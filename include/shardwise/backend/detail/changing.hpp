#pragma once
// Values of the host that change from step to step, as loops find them.

#include <optional>

#include "shardwise/core/memory.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// A value that a loop carries with it.
template <class T>
struct Held {
  T value;
  constexpr const T& operator*() const { return value; }
};

/// A value that loops read when they run, as `*here()`. On the host they carry it with them. On a
/// device it lies in memory, so loops that were recorded once find the value of each launch.
template <class B, class T>
class Changing {
 public:
  /// `value` is the first one; memory of a device is the pool's.
  Changing(B&, Pool&, const T& value) : value_(value) {}

  /// For what the backend is called for from now on.
  void set(B&, const T& value) { value_.emplace(value); }

  /// What a loop is given.
  Held<T> here() const { return {*value_}; }

 private:
  std::optional<T> value_;  ///< always there: what need not be assignable is made anew in it
};

template <DeviceBackend B, class T>
class Changing<B, T> {
 public:
  Changing(B& backend, Pool& pool, const T& value) : memory_(pool.take(sizeof(T))) {
    set(backend, value);
  }

  /// The value travels as an argument of a loop, so the host waits for nothing, and work that was
  /// called for before still finds the value before.
  void set(B& backend, const T& value) { fill(backend, there(), 1, value); }

  const T* here() const { return there(); }

 private:
  T* there() const { return static_cast<T*>(memory_.data()); }

  Buffer memory_;
};

}  // namespace shardwise::detail

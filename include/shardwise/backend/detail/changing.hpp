#pragma once
// Values of the host that change from step to step, for loops.

#include <optional>

#include "shardwise/core/memory.hpp"
#include "shardwise/core/tensor_memory.hpp"

namespace shardwise::detail {

/// A value inside a loop's function object.
template <class T>
struct Held {
  T value;
  constexpr const T& operator*() const { return value; }
};

/// A value that loops read when they run, as `*here()`. On the host a loop has a copy of it. On a
/// device it is in memory, so recorded loops read the current value at each launch.
template <class B, class T>
class Changing {
 public:
  /// `value` is the first value; device memory comes from the pool.
  Changing(B&, Pool&, const T& value) : value_(value) {}

  /// Sets the value for later calls of the backend.
  void set(B&, const T& value) { value_.emplace(value); }

  /// The object that a loop gets.
  Held<T> here() const { return {*value_}; }

 private:
  std::optional<T> value_;  ///< never empty; emplace() allows a T that is not assignable
};

template <DeviceBackend B, class T>
class Changing<B, T> {
 public:
  Changing(B& backend, Pool& pool, const T& value) : memory_(pool.take(sizeof(T))) {
    set(backend, value);
  }

  /// The value is an argument of a loop, so the host waits for nothing, and earlier work still
  /// reads the old value.
  void set(B& backend, const T& value) { fill(backend, there(), 1, value); }

  const T* here() const { return there(); }

 private:
  T* there() const { return static_cast<T*>(memory_.data()); }

  Buffer memory_;
};

}  // namespace shardwise::detail

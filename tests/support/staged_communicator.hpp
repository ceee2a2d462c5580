#pragma once
// Collectives of the host for tests, by a communicator that takes memory of a device alone.

#include <memory>
#include <span>
#include <utility>

#include "shardwise/comm/call.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/core/memory.hpp"

namespace testing {

/// The device of a rank, and memory there.
template <class B>
struct StagingDevice {
  template <class... Given>
  explicit StagingDevice(const Given&... given) : backend(given...), pool(backend.memory()) {}
  B backend;
  shardwise::Pool pool;
};

/// Forwards to a communicator for memory of a device, and copies from the host and back.
template <class Inner, class B>
class StagedCommunicator : public shardwise::Collectives<StagedCommunicator<Inner, B>> {
  using Device = StagingDevice<B>;

 public:
  StagedCommunicator(std::shared_ptr<Device> device, Inner inner)
      : device_(std::move(device)), inner_(std::move(inner)) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  StagedCommunicator split(int color, int key) { return {device_, inner_.split(color, key)}; }

  /// The communicator for memory of the device.
  Inner& inner() { return inner_; }
  B& backend() { return device_->backend; }

 private:
  friend shardwise::Collectives<StagedCommunicator>;

  /// `in` may lie in `out`, and then does so there.
  template <template <class> class Move, class T>
  void move(const shardwise::Call&, const Move<T>& m) {
    std::span<const T> in;
    std::span<T> out;
    if constexpr (requires { m.in; }) in = m.in;
    if constexpr (requires { m.out; }) out = m.out;
    const auto out_memory = device_->pool.take(out.size_bytes());
    const auto in_memory = device_->pool.take(in.size_bytes());
    T* const far_out = static_cast<T*>(out_memory.data());
    T* far_in = static_cast<T*>(in_memory.data());
    if (!out.empty()) device_->backend.to_device(out.data(), out.size(), far_out);
    if (in.data() >= out.data() && in.data() < out.data() + out.size()) {
      far_in = far_out + (in.data() - out.data());
    } else if (!in.empty()) {
      device_->backend.to_device(in.data(), in.size(), far_in);
    }
    Move<T> far = m;
    if constexpr (requires { m.in; }) {
      if (in.data() != nullptr) far.in = {far_in, in.size()};
    }
    if constexpr (requires { m.out; }) {
      if (out.data() != nullptr) far.out = {far_out, out.size()};
    }
    far.on(inner_);
    if (!out.empty()) device_->backend.to_host(far_out, out.size(), out.data());
    // What a failed call has written is undefined.
    if constexpr (requires { inner_.check(); }) inner_.check();
  }
  void move(const shardwise::Call&, const shardwise::moves::Barrier& m) { m.on(inner_); }

  std::shared_ptr<Device> device_;
  Inner inner_;
};

}  // namespace testing

#pragma once
// Collectives of the host for tests, by a communicator that takes memory of a device alone.

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "shardwise/comm/communicator.hpp"
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
class StagedCommunicator {
  template <class T>
  using In = std::type_identity_t<std::span<const T>>;
  using Reduction = shardwise::Reduction;
  using Counts = std::span<const std::size_t>;
  using Device = StagingDevice<B>;

 public:
  StagedCommunicator(std::shared_ptr<Device> device, Inner inner)
      : device_(std::move(device)), inner_(std::move(inner)) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }

  template <shardwise::Element T>
  void all_reduce(In<T> in, std::span<T> out, Reduction reduction = Reduction::sum) {
    staged(in, out, [&](auto far_in, auto far_out) {
      inner_.template all_reduce<T>(far_in, far_out, reduction);
    });
  }
  template <shardwise::Element T>
  void all_gather(In<T> in, std::span<T> out, Counts counts) {
    staged(in, out, [&](auto far_in, auto far_out) {
      inner_.template all_gather<T>(far_in, far_out, counts);
    });
  }
  template <shardwise::Element T>
  void reduce_scatter(In<T> in, std::span<T> out, Counts counts,
                      Reduction reduction = Reduction::sum) {
    staged(in, out, [&](auto far_in, auto far_out) {
      inner_.template reduce_scatter<T>(far_in, far_out, counts, reduction);
    });
  }
  template <shardwise::Element T>
  void broadcast(std::span<T> data, int root) {
    staged(std::span<const T>(), data,
           [&](auto, auto far_out) { inner_.template broadcast<T>(far_out, root); });
  }
  template <shardwise::Element T>
  void gather(In<T> in, std::span<T> out, Counts counts, int root) {
    staged(in, out, [&](auto far_in, auto far_out) {
      inner_.template gather<T>(far_in, far_out, counts, root);
    });
  }
  template <shardwise::Element T>
  void scatter(In<T> in, std::span<T> out, Counts counts, int root) {
    staged(in, out, [&](auto far_in, auto far_out) {
      inner_.template scatter<T>(far_in, far_out, counts, root);
    });
  }
  template <shardwise::Element T>
  void all_to_all(In<T> in, Counts sent, std::span<T> out, Counts received) {
    staged(in, out, [&](auto far_in, auto far_out) {
      inner_.template all_to_all<T>(far_in, sent, far_out, received);
    });
  }
  template <shardwise::Element T>
  void send(std::span<const T> data, int to, int tag = 0) {
    staged(data, std::span<T>(),
           [&](auto far_in, auto) { inner_.template send<T>(far_in, to, tag); });
  }
  template <shardwise::Element T>
  void receive(std::span<T> data, int from, int tag = 0) {
    staged(std::span<const T>(), data,
           [&](auto, auto far_out) { inner_.template receive<T>(far_out, from, tag); });
  }
  void barrier() { inner_.barrier(); }
  StagedCommunicator split(int color, int key) { return {device_, inner_.split(color, key)}; }

 private:
  /// `in` may lie in `out`, and then does so there.
  template <class T, class Call>
  void staged(std::span<const T> in, std::span<T> out, Call call) {
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
    const bool is_null = out.data() == nullptr;
    call(std::span<const T>(in.data() == nullptr ? nullptr : far_in, in.size()),
         std::span<T>(is_null ? nullptr : far_out, out.size()));
    if (!out.empty()) device_->backend.to_host(far_out, out.size(), out.data());
  }

  std::shared_ptr<Device> device_;
  Inner inner_;
};

}  // namespace testing

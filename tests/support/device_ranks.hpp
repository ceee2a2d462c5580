#pragma once
// For support/ranks.hpp: thread ranks whose collectives take far memory alone. What a test passes
// in is staged there and back.

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/comm/device_threads.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/core/partition.hpp"
#include "support/far.hpp"

namespace testing {

/// Forwards to a DeviceThreadCommunicator, whose buffers it copies from and to the host.
class StagedRanks {
  template <class T>
  using In = std::type_identity_t<std::span<const T>>;
  using Reduction = shardwise::Reduction;
  using Counts = std::span<const std::size_t>;
  using Inner = shardwise::DeviceThreadCommunicator<Far>;

 public:
  StagedRanks(shardwise::ThreadCommunicator threads, std::shared_ptr<FarMemory> memory)
      : device_(std::make_shared<Device>(std::move(memory))), inner_(threads, device_->far) {}

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
  StagedRanks split(int color, int key) { return {inner_.split(color, key), device_}; }

 private:
  struct Device {
    explicit Device(std::shared_ptr<FarMemory> memory)
        : far(std::move(memory)), pool(far.memory()) {}
    Far far;
    shardwise::Pool pool;
  };

  StagedRanks(Inner inner, std::shared_ptr<Device> device)
      : device_(std::move(device)), inner_(std::move(inner)) {}

  /// `in` may lie in `out`, and then does so there.
  template <class T, class Call>
  void staged(std::span<const T> in, std::span<T> out, Call call) {
    const auto out_memory = device_->pool.take(out.size_bytes());
    const auto in_memory = device_->pool.take(in.size_bytes());
    T* const far_out = static_cast<T*>(out_memory.data());
    T* far_in = static_cast<T*>(in_memory.data());
    if (!out.empty()) device_->far.to_device(out.data(), out.size(), far_out);
    if (in.data() >= out.data() && in.data() < out.data() + out.size()) {
      far_in = far_out + (in.data() - out.data());
    } else if (!in.empty()) {
      device_->far.to_device(in.data(), in.size(), far_in);
    }
    const bool is_null = out.data() == nullptr;
    call(std::span<const T>(in.data() == nullptr ? nullptr : far_in, in.size()),
         std::span<T>(is_null ? nullptr : far_out, out.size()));
    if (!out.empty()) device_->far.to_host(far_out, out.size(), out.data());
  }

  std::shared_ptr<Device> device_;
  Inner inner_;
};

static_assert(shardwise::Communicator<StagedRanks>);

using Ranks = StagedRanks;

template <class F>
void run_on_ranks(int ranks, F&& f) {
  const auto memory = std::make_shared<FarMemory>();
  shardwise::run_ranks(ranks, [&](shardwise::ThreadCommunicator& threads) {
    StagedRanks staged(threads, memory);
    f(staged);
  });
}

inline std::vector<int> rank_counts(std::initializer_list<int> counts) { return counts; }
inline int any_ranks(int preferred) { return preferred; }

/// Threads keep their notes in one memory, each its own.
template <class T, class F>
void tell(shardwise::Place place, const std::vector<T>& values, F&& f) {
  f(place.rank, values);
}

}  // namespace testing

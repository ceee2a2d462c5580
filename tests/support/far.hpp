#pragma once
// Where tests of code for devices keep tensors. Under nvcc that is a GPU. Elsewhere it is a device
// without a device: a backend whose tensors lie in memory that can be touched only while one of its
// kernels or copies runs, and a communicator that takes no other memory. Code that reads or writes
// a tensor from the host ends with a segmentation fault. Its kernels and collectives can be
// recorded and launched again.

#ifdef __CUDACC__

#include <memory>

#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/comm/device_threads.hpp"

namespace testing {

/// Ranks that share a GPU share its memory.
struct FarMemory {};

class Far : public shardwise::Cuda {
 public:
  Far() = default;
  explicit Far(const std::shared_ptr<FarMemory>&) {}
};

using FarCommunicator = shardwise::DeviceThreadCommunicator<Far>;

}  // namespace testing

#else

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/backend/recording.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/call.hpp"
#include "shardwise/comm/collectives.hpp"
#include "shardwise/comm/gathered.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "support/enqueued_kernel.hpp"
#include "support/plain_communicator.hpp"

namespace testing {

/// One piece of address space, closed until somebody opens it. Begins as NaNs. Ranks may share it.
class FarMemory final : public shardwise::MemorySource {
 public:
  explicit FarMemory(std::size_t bytes = std::size_t{1} << 26)
      : bytes_(bytes),
        begin_(static_cast<std::byte*>(
            mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (begin_ == MAP_FAILED) throw std::runtime_error("no address space");
  }
  ~FarMemory() override { munmap(begin_, bytes_); }

  void* allocate(std::size_t bytes) override {
    if (is_recording) return nullptr;  // as cudaMalloc refuses
    const std::size_t whole = (bytes + 63) / 64 * 64;
    const std::size_t first = used_.fetch_add(whole);
    if (first + whole > bytes_) return nullptr;
    void* const memory = begin_ + first;
    open();
    std::memset(memory, 0xff, whole);
    close();
    return memory;
  }
  void release(void*) noexcept override {}  // all of it goes with this object

  /// Whether what the calling thread does is recorded.
  static inline thread_local bool is_recording = false;

  bool holds(const void* from, std::size_t bytes) const {
    const auto* const first = static_cast<const std::byte*>(from);
    return bytes == 0 || (first >= begin_ && first + bytes <= begin_ + used_);
  }

  void open() {
    const std::lock_guard lock(changes_);
    if (opened_++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  void close() {
    const std::lock_guard lock(changes_);
    if (--opened_ == 0) protect(PROT_NONE);
  }

 private:
  void protect(int how) {
    if (mprotect(begin_, bytes_, how) != 0) throw std::runtime_error("mprotect");
  }

  std::size_t bytes_;
  std::byte* begin_;
  std::atomic<std::size_t> used_{0};
  std::mutex changes_;
  int opened_ = 0;
};

/// The memory is open as long as this lives.
class Open {
 public:
  explicit Open(FarMemory& memory) : memory_(memory) { memory_.open(); }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  ~Open() { memory_.close(); }

 private:
  FarMemory& memory_;
};

/// `Reference` on far memory.
class Far {
 public:
  template <shardwise::Real T>
  using Linear = EnqueuedKernel<shardwise::Reference::Linear<T>, Far>;
  template <shardwise::Real T>
  using Convolution = EnqueuedKernel<shardwise::Reference::Convolution<T>, Far>;
  template <shardwise::Real T>
  using MaxPooling = EnqueuedKernel<shardwise::Reference::MaxPooling<T>, Far>;
  template <shardwise::Real T>
  using AveragePooling = EnqueuedKernel<shardwise::Reference::AveragePooling<T>, Far>;

  bool reaches(const void* from) const { return memory_.holds(from, 1); }

  /// On memory of its own.
  Far() : Far(std::make_shared<FarMemory>()) {}
  /// On memory that other ranks have too.
  explicit Far(std::shared_ptr<FarMemory> shared) : shared_(std::move(shared)) {}

  FarMemory& memory() { return memory_; }
  shardwise::Reference& host() { return host_; }

  /// What it is called for, to be done at each launch.
  class Recording {
   public:
    template <class Work>
    Recording(Far& far, Work&& work) {
      const While recording(far, calls_);
      work();
    }
    void launch() {
      for (const auto& call : calls_) call();
    }

   private:
    using Calls = std::vector<std::function<void()> >;

    class While {
     public:
      While(Far& far, Calls& calls) : far_(far) { set(&calls); }
      While(const While&) = delete;
      While& operator=(const While&) = delete;
      ~While() { set(nullptr); }

     private:
      void set(Calls* calls) {
        far_.recorded_ = calls;
        FarMemory::is_recording = calls != nullptr;
      }
      Far& far_;
    };

    Calls calls_;
  };

  /// Does what the device is to do: now, or at each launch of what is being recorded. The memory is
  /// open meanwhile.
  template <class Call>
  void enqueue(Call call) {
    auto run = [this, call]() mutable {
      const Open open(memory_);
      call();
    };
    if (recorded_ == nullptr)
      run();
    else
      recorded_->push_back(std::move(run));
  }

  /// All is done when a call returns, so there is nothing to wait for; but it is checked that the
  /// event exists.
  struct Event {
    explicit Event(Far&) : times_recorded(std::make_unique<std::atomic<int> >(0)) {}
    void record() { ++*times_recorded; }
    std::unique_ptr<std::atomic<int> > times_recorded;
  };
  void wait_for(const Event& event) {
    if (*event.times_recorded < 0) throw std::logic_error("an event is gone");
  }
  /// All memory is the process's.
  void enable_peer_access(const Event&) {}

  template <class F>
  void for_each(std::size_t n, F f) {
    static_assert(std::is_trivially_copyable_v<F>, "a kernel's arguments are copied as bytes");
    enqueue([this, n, f] { host_.for_each(n, f); });
  }

  template <class A, class Terms, class Combine, class Put>
  void reduce_each(std::size_t rows, std::size_t n, shardwise::Adjacent, A first, Terms terms,
                   Combine, Put put) {
    static_assert(std::is_trivially_copyable_v<Terms> && std::is_trivially_copyable_v<Put>,
                  "a kernel's arguments are copied as bytes");
    static_assert(std::is_empty_v<Combine>, "what combines two terms holds nothing");
    enqueue([=] {
      for (std::size_t r = 0; r < rows; ++r)
        put(r, shardwise::detail::lane_reduce(n, first, terms(r), Combine{}));
    });
  }

  template <class T>
  void to_host(const T* from, std::size_t n, T* to) {
    copy(from, n, to);
  }
  template <class T>
  void to_device(const T* from, std::size_t n, T* to) {
    copy(from, n, to);
  }

 private:
  template <class T>
  void copy(const T* from, std::size_t n, T* to) {
    if (recorded_ != nullptr) throw shardwise::backend_error("Far: a copy that waits is recorded");
    const Open open(memory_);
    std::copy_n(from, n, to);
  }

  std::shared_ptr<FarMemory> shared_;
  FarMemory& memory_ = *shared_;
  shardwise::Reference host_;
  std::vector<std::function<void()> >* recorded_ = nullptr;
};

static_assert(shardwise::RecordingBackend<Far> && shardwise::Backend<Far, float>);
static_assert(!shardwise::DeviceBackend<shardwise::Reference>);

/// A rank whose collectives take far memory alone, as NCCL's take that of a GPU.
class FarCommunicator : public shardwise::Collectives<FarCommunicator> {
  using Inner = PlainCommunicator<shardwise::ThreadCommunicator>;

 public:
  /// The rank computes with `far`.
  FarCommunicator(shardwise::ThreadCommunicator ranks, Far& far)
      : FarCommunicator(Inner(std::move(ranks)), far.memory()) {
    far_ = &far;
  }
  /// `memory` is that of the rank's backend, which records nothing.
  FarCommunicator(shardwise::ThreadCommunicator ranks, FarMemory& memory)
      : FarCommunicator(Inner(std::move(ranks)), memory) {}

  static constexpr bool takes_device_memory = true;
  static constexpr bool can_be_recorded = true;

  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }
  FarCommunicator split(int color, int key) {
    FarCommunicator part(ranks_.split(color, key), *memory_);
    part.far_ = far_;
    return part;
  }
  /// In memory of the host.
  template <class T>
  std::vector<T> gathered(const T& mine) {
    return shardwise::gathered(ranks_, mine);
  }

 private:
  friend shardwise::Collectives<FarCommunicator>;
  using Kept = std::vector<std::size_t>;

  FarCommunicator(Inner ranks, FarMemory& memory) : ranks_(std::move(ranks)), memory_(&memory) {}

  /// Makes the call when it is the backend's turn to do it, with counts that it keeps.
  template <class Move>
  void move(const shardwise::Call&, const Move& m) {
    Kept first, second;
    if constexpr (requires { m.in; }) require_far(m.in);
    if constexpr (requires { m.out; }) require_far(m.out);
    if constexpr (requires { m.counts; }) first.assign(m.counts.begin(), m.counts.end());
    if constexpr (requires { m.sent; }) {
      first.assign(m.sent.begin(), m.sent.end());
      second.assign(m.received.begin(), m.received.end());
    }
    auto collective = [this, m = m, first, second]() mutable {
      if constexpr (requires { m.counts; }) m.counts = first;
      if constexpr (requires { m.sent; }) {
        m.sent = first;
        m.received = second;
      }
      m.on(ranks_);
    };
    if (far_ != nullptr) return far_->enqueue(collective);
    const Open open(*memory_);
    collective();
  }
  void move(const shardwise::Call&, const shardwise::moves::Barrier& m) { m.on(ranks_); }

  template <class T>
  void require_far(std::span<T> buffer) const {
    if (!memory_->holds(buffer.data(), buffer.size_bytes()))
      throw std::runtime_error("a collective was given memory of the host");
  }

  Inner ranks_;
  FarMemory* memory_;
  Far* far_ = nullptr;
};

static_assert(shardwise::Communicator<FarCommunicator>);

}  // namespace testing

#endif

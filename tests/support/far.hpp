#pragma once
// Where tests of code for devices keep tensors. Under nvcc that is a GPU. Elsewhere it is a device
// without a device: a backend whose tensors lie in memory that can be touched only while one of its
// kernels or copies runs, and a communicator that takes no other memory. Code that reads or writes
// a tensor from the host ends with a segmentation fault.

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
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "shardwise/backend/reference.hpp"
#include "shardwise/backend/tensor_memory.hpp"
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

template <class Kernel>
class FarKernel;

/// `Reference` on far memory.
class Far {
 public:
  template <shardwise::Real T>
  using Linear = FarKernel<shardwise::Reference::Linear<T> >;
  template <shardwise::Real T>
  using Convolution = FarKernel<shardwise::Reference::Convolution<T> >;
  template <shardwise::Real T>
  using MaxPooling = FarKernel<shardwise::Reference::MaxPooling<T> >;
  template <shardwise::Real T>
  using AveragePooling = FarKernel<shardwise::Reference::AveragePooling<T> >;

  bool reaches(const void* from) const { return memory_.holds(from, 1); }

  /// On memory of its own.
  Far() : Far(std::make_shared<FarMemory>()) {}
  /// On memory that other ranks have too.
  explicit Far(std::shared_ptr<FarMemory> shared) : shared_(std::move(shared)) {}

  FarMemory& memory() { return memory_; }

  /// All is done when a call returns, so there is nothing to wait for; but a mark is looked at.
  struct Mark {
    explicit Mark(Far&) : times_set(std::make_unique<std::atomic<int> >(0)) {}
    void set() { ++*times_set; }
    std::unique_ptr<std::atomic<int> > times_set;
  };
  void follow(const Mark& mark) {
    if (*mark.times_set < 0) throw std::logic_error("a mark is gone");
  }
  /// All memory is the process's.
  void reach(const Mark&) {}

  template <class F>
  void for_each(std::size_t n, F f) {
    static_assert(std::is_trivially_copyable_v<F>, "a kernel's arguments are copied as bytes");
    const Open open(memory_);
    host_.for_each(n, f);
  }

  template <class A, class Terms, class Combine, class Put>
  void reduce_each(std::size_t rows, std::size_t n, shardwise::Adjacent, A first, Terms terms,
                   Combine combine, Put put) {
    static_assert(std::is_trivially_copyable_v<Terms> && std::is_trivially_copyable_v<Put>,
                  "a kernel's arguments are copied as bytes");
    const Open open(memory_);
    for (std::size_t r = 0; r < rows; ++r)
      put(r, shardwise::detail::lane_reduce(n, first, terms(r), combine));
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
  template <class Kernel>
  friend class FarKernel;

  template <class T>
  void copy(const T* from, std::size_t n, T* to) {
    const Open open(memory_);
    std::copy_n(from, n, to);
  }

  std::shared_ptr<FarMemory> shared_;
  FarMemory& memory_ = *shared_;
  shardwise::Reference host_;
};

/// A kernel of `Reference`, for which the memory is open while it computes.
template <class Kernel>
class FarKernel {
 public:
  template <class... Given>
  explicit FarKernel(Far& far, Given... given) : far_(far), kernel_(far.host_, given...) {}

  std::size_t record_bytes(const shardwise::PoolingCall& call) const {
    return kernel_.record_bytes(call);
  }
  template <class... Given>
  void forward(Given... given) {
    const Open open(far_.memory_);
    kernel_.forward(given...);
  }
  template <class... Given>
  void backward(Given... given) {
    const Open open(far_.memory_);
    kernel_.backward(given...);
  }
  template <class... Given>
  void backward_input(Given... given) {
    const Open open(far_.memory_);
    kernel_.backward_input(given...);
  }
  template <class... Given>
  void backward_weight(Given... given) {
    const Open open(far_.memory_);
    kernel_.backward_weight(given...);
  }

 private:
  Far& far_;
  Kernel kernel_;
};

static_assert(shardwise::DeviceBackend<Far> && shardwise::Backend<Far, float>);
static_assert(!shardwise::DeviceBackend<shardwise::Reference>);

/// A rank whose collectives take far memory alone, as NCCL's take that of a GPU.
class FarCommunicator {
  using Inner = PlainCommunicator<shardwise::ThreadCommunicator>;
  using Reduction = shardwise::Reduction;
  using Counts = std::span<const std::size_t>;
  template <class T>
  using In = std::type_identity_t<std::span<const T> >;

 public:
  /// The rank computes with `far`.
  FarCommunicator(shardwise::ThreadCommunicator ranks, Far& far)
      : FarCommunicator(std::move(ranks), far.memory()) {}
  /// `memory` is that of the rank's backend.
  FarCommunicator(shardwise::ThreadCommunicator ranks, FarMemory& memory)
      : FarCommunicator(Inner(std::move(ranks)), memory) {}

  static constexpr bool takes_device_memory = true;

  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }

  template <shardwise::Element T>
  void all_reduce(In<T> in, std::span<T> out, Reduction reduction = Reduction::sum) {
    const Open open = opened(in, out);
    ranks_.all_reduce(in, out, reduction);
  }
  template <shardwise::Element T>
  void all_gather(In<T> in, std::span<T> out, Counts counts) {
    const Open open = opened(in, out);
    ranks_.all_gather(in, out, counts);
  }
  template <shardwise::Element T>
  void reduce_scatter(In<T> in, std::span<T> out, Counts counts,
                      Reduction reduction = Reduction::sum) {
    const Open open = opened(in, out);
    ranks_.reduce_scatter(in, out, counts, reduction);
  }
  template <shardwise::Element T>
  void broadcast(std::span<T> data, int root) {
    const Open open = opened(std::span<const T>(data), data);
    ranks_.broadcast(data, root);
  }
  template <shardwise::Element T>
  void gather(In<T> in, std::span<T> out, Counts counts, int root) {
    const Open open = opened(in, out);
    ranks_.gather(in, out, counts, root);
  }
  template <shardwise::Element T>
  void scatter(In<T> in, std::span<T> out, Counts counts, int root) {
    const Open open = opened(in, out);
    ranks_.scatter(in, out, counts, root);
  }
  template <shardwise::Element T>
  void all_to_all(In<T> in, Counts sent, std::span<T> out, Counts received) {
    const Open open = opened(in, out);
    ranks_.all_to_all(in, sent, out, received);
  }
  template <shardwise::Element T>
  void send(std::span<const T> data, int to, int tag = 0) {
    const Open open = opened(data, std::span<T>());
    ranks_.send(data, to, tag);
  }
  template <shardwise::Element T>
  void receive(std::span<T> data, int from, int tag = 0) {
    const Open open = opened(std::span<const T>(), data);
    ranks_.receive(data, from, tag);
  }
  void barrier() { ranks_.barrier(); }
  FarCommunicator split(int color, int key) { return {ranks_.split(color, key), *memory_}; }

 private:
  FarCommunicator(Inner ranks, FarMemory& memory) : ranks_(std::move(ranks)), memory_(&memory) {}

  template <class T>
  Open opened(std::span<const T> in, std::span<T> out) const {
    if (!memory_->holds(in.data(), in.size_bytes()) ||
        !memory_->holds(out.data(), out.size_bytes())) {
      throw std::runtime_error("a collective was given memory of the host");
    }
    return Open(*memory_);
  }

  Inner ranks_;
  FarMemory* memory_;
};

static_assert(shardwise::Communicator<FarCommunicator>);

}  // namespace testing

#endif

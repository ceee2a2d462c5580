#pragma once
// Models that read the weights of another model.

#include <atomic>
#include <concepts>
#include <cstdio>
#include <cstdlib>

#include "shardwise/backend/backend.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/redistribute/run.hpp"

namespace shardwise::detail {

/// The readers of a model's weights; or in a reader, the model whose weights it reads.
class SharedWeights {
 public:
  SharedWeights() = default;
  SharedWeights(const SharedWeights&) = delete;
  SharedWeights& operator=(const SharedWeights&) = delete;
  /// Ends the process for a model that leaves readers, whose weights are then gone.
  ~SharedWeights();

  /// From now on a reader of the weights of this model, or of those that it reads itself.
  void read(SharedWeights& of);

  /// throws  argument_error in a reader, and while a model has readers
  void require_own() const;

 private:
  [[noreturn, gnu::cold]] void refuse() const;

  SharedWeights* owner_ = nullptr;
  std::atomic<int> readers_{0};
};

/// Ranks that are threads, of which several groups may have the parts of one model.
template <class C>
concept RanksAsThreads = requires(const C& c) {
  { c.shares_threads_with(c) } -> std::same_as<bool>;
};

/// The errors for a model that cannot share its weights.
template <class Context, class Use>
consteval bool must_share_weights() {
  using Ranks = typename Context::communicator;
  static_assert(!Use::trains,
                "a reader of another model's weights only goes forward: its use is ForwardOnly.");
  static_assert(!MeshCommunicator<Ranks> && (AloneByType<Ranks> || RanksAsThreads<Ranks>),
                "weights are shared by models on SingleRank or ThreadCommunicator: processes share "
                "no memory, and on a mesh each model has weights of its own.");
  static_assert(!DeviceBackend<typename Context::backend>,
                "weights in a device's memory are not shared: each model has a stream of its own.");
  return true;
}

/// throws  argument_error if a reader on these ranks cannot run beside the model on those
template <class Ranks>
void require_beside(const Ranks& reader, const Ranks& model) {
  if (reader.rank() != model.rank() || reader.size() != model.size())
    throw argument_error({"a reader on rank ", reader.rank(), " of ", reader.size(),
                          " of a model on rank ", model.rank(), " of ", model.size(),
                          ": both have the same part of the weights only on the same rank of "
                          "equally many"});
  if constexpr (RanksAsThreads<Ranks>) {
    if (!reader.shares_threads_with(model)) return;
    throw argument_error(
        "a reader on the threads of its model, which can make only one call at a time: give it "
        "ranks of another run_ranks or RankGroup");
  }
}

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE SharedWeights::~SharedWeights() {
  if (owner_ != nullptr) owner_->readers_.fetch_sub(1, std::memory_order_release);
  if (readers_.load(std::memory_order_acquire) == 0) return;
  std::fputs(
      "shardwise: a Model ends before the readers that share its weights; let it live longer\n",
      stderr);
  std::abort();
}

SHARDWISE_INLINE void SharedWeights::read(SharedWeights& of) {
  owner_ = of.owner_ == nullptr ? &of : of.owner_;
  owner_->readers_.fetch_add(1, std::memory_order_relaxed);
}

SHARDWISE_INLINE void SharedWeights::require_own() const {
  if (owner_ == nullptr && readers_.load(std::memory_order_acquire) == 0) return;
  refuse();
}

SHARDWISE_INLINE void SharedWeights::refuse() const {
  if (owner_ != nullptr)
    throw argument_error(
        "this model reads the weights of another one, and is only evaluated: train, change, load "
        "or save that one");
  throw argument_error({readers_.load(),
                        " reader(s) share the weights of this model, which is "
                        "only evaluated meanwhile: end them before you train, change, load or "
                        "save it, and make new ones after that"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

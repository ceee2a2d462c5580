#pragma once
// Parameters of layers that ranks gather while they compute the layers before.

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/detail/agreed.hpp"
#include "shardwise/comm/detail/begun.hpp"
#include "shardwise/comm/gathered.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/comm/starts_all_reduce.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/model/keep.hpp"
#include "shardwise/model/meanwhile.hpp"
#include "shardwise/model/parameter_layout.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/whole_parameters.hpp"
#include "shardwise/redistribute/packed.hpp"

namespace shardwise {

namespace detail {

/// Throws argument_error for a model whose parameters cannot be prefetched so.
inline void require_prefetches(Keep keep, std::size_t layers, bool are_prefetched) {
  if (!cuts_parameters(keep))
    throw argument_error({"PrefetchedParameters: the model was made with ", keep,
                          ", so each rank has all of its parameters and gathers none. Make it with "
                          "Keep::all_over_data, or leave PrefetchedParameters out"});
  if (layers == 0)
    throw argument_error(
        "PrefetchedParameters: 0 layers ahead are none. Give 1 or more, or leave "
        "PrefetchedParameters out");
  if (are_prefetched)
    throw argument_error(
        "PrefetchedParameters: this model has PrefetchedParameters already. Give them all layers "
        "that they are to gather ahead");
}

}  // namespace detail

/// Gathers the parameters of a model that was made with Keep::all_over_data before the layers that
/// use them run. While a layer runs forward, those of the next layers with parameters are under
/// way; while it runs backward, those of the layers before it. Losses and parameters have the same
/// bits as without it, and ranks send the same.
///
///     PrefetchedParameters prefetched(model);  // once; from now on for all calls of the model
///
/// The layers in the block of a Recompute that runs forward again gather for themselves, and so
/// does the first layer of each forward and backward. A rank needs memory for the parameters of one
/// more layer, or of `layers` more; `state_of_rank` tells it. Allocates nothing after the first
/// steps. Where the communicator neither `BeginsCollectives` nor `StartsAllGather`, layers gather
/// for themselves, as without it.
///
/// Every rank makes one, and the model outlives it.
template <class M>
class PrefetchedParameters final : public detail::Prefetcher {
  using Context = typename M::context;
  using Ranks = typename M::communicator;
  using T = typename Context::dtype;
  static_assert(MeshCommunicator<Ranks>,
                "PrefetchedParameters gathers over the ranks of a mesh along `data`, and this "
                "model is on no mesh: make it on MeshRanks, or leave PrefetchedParameters out.");
  using Group = std::remove_reference_t<decltype(std::declval<Ranks&>().along(MeshAxis::data))>;

 public:
  /// For the next `layers` layers with parameters.
  /// sends    an all-gather of a number
  /// throws   collective_error if `layers` differs between ranks; argument_error for 0 layers, for
  ///          another Keep of the model, and if it has PrefetchedParameters already
  explicit PrefetchedParameters(M& model, std::size_t layers = 1)
      : run_(model.run()), slots_(std::min(layers, run_.of_layers.size())) {
    detail::require_agreed(gathered(run_.all_ranks, layers),
                           "how many layers PrefetchedParameters gathers ahead");
    detail::require_prefetches(run_.keep, layers, run_.prefetcher != nullptr);
    constexpr bool can_begin = BeginsCollectives<Group> || StartsAllGather<Group>;
    if (can_begin && run_.parameters.stores_share()) run_.prefetcher = this;
  }
  PrefetchedParameters(const PrefetchedParameters&) = delete;
  PrefetchedParameters& operator=(const PrefetchedParameters&) = delete;
  ~PrefetchedParameters() override {
    if (run_.prefetcher == this) run_.prefetcher = nullptr;
  }

  ///@{
  /// For layers, see detail::Prefetcher.
  void begin_pass(bool goes_backward) override { goes_backward_ = goes_backward; }
  void end_pass() noexcept override {
    for (Slot& slot : slots_) discard(slot);
  }
  Buffer take(std::size_t number) override {
    Slot& slot = slot_of(number);
    if (!slot.is_for(number)) begin(slot, number);
    Buffer values = finish(slot);
    progress();
    if (!run_.is_again) begin_behind(number);
    return values;
  }
  void progress() override {
    for (Slot& slot : slots_)
      for (Gather& one : slot.gathers) one.progress();
  }
  ///@}

 private:
  using Move = moves::AllGather<T>;
  using Gather = decltype(detail::begun(std::declval<Group&>(), std::declval<const Move&>()));

  /// Room for the parameters of a layer that runs later. When it runs, its slot is free again.
  struct Slot {
    std::size_t behind = 0;  ///< its number + 1; 0 if nothing is under way
    Buffer values{};
    std::vector<Gather> gathers{};  ///< of each parameter

    bool is_for(std::size_t number) const { return behind == number + 1; }
  };

  Slot& slot_of(std::size_t number) { return slots_[number % slots_.size()]; }

  /// The next layers, as long as none is in a block that first runs forward again.
  void begin_behind(std::size_t number) {
    const std::size_t recomputed = run_.of_layers[number].recomputed;
    for (std::size_t i = 1; i <= slots_.size(); ++i) {
      if (goes_backward_ ? number < i : number + i >= run_.of_layers.size()) return;
      const std::size_t next = goes_backward_ ? number - i : number + i;
      const std::size_t of_next = run_.of_layers[next].recomputed;
      if (goes_backward_ && of_next != 0 && of_next != recomputed) return;
      if (!slot_of(next).is_for(next)) begin(slot_of(next), next);
    }
  }

  void begin(Slot& slot, std::size_t number) {
    discard(slot);
    const detail::ParametersOfLayer& layer = run_.of_layers[number];
    slot.values = run_.pool.take(detail::elements_of(layer.slots, layer.count) * sizeof(T));
    slot.behind = number + 1;
    T* whole = static_cast<T*>(slot.values.data());
    for (const detail::ParameterSlot& one : std::span(layer.slots, layer.count)) {
      detail::gather_stored_by(
          run_, run_.parameters, one, run_.parameters.used(one), whole,
          [&](std::span<const T> mine, std::span<T> all) {
            const detail::Counts counts = detail::stored_counts(run_, run_.parameters, one);
            slot.gathers.push_back(
                detail::begun(run_.all_ranks.along(MeshAxis::data), Move{mine, all, counts}));
          });
      whole += one.size;
    }
  }

  Buffer finish(Slot& slot) {
    for (Gather& one : slot.gathers) one.finish();
    slot.gathers.clear();
    slot.behind = 0;
    return std::move(slot.values);
  }

  /// Waits for what is under way.
  static void discard(Slot& slot) noexcept {
    slot.gathers.clear();
    slot.behind = 0;
    slot.values = {};
  }

  Run<Context>& run_;
  std::vector<Slot> slots_;
  bool goes_backward_ = false;
};

}  // namespace shardwise

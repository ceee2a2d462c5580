#pragma once
// Parameters of layers that ranks gather while they compute the layers before.

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/comm/detail/begun.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/comm/moves.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/model/parameter_layout.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/traffic.hpp"
#include "shardwise/model/whole_parameters.hpp"
#include "shardwise/redistribute/packed.hpp"

namespace shardwise::detail {

/// Gathers the parameters of a model that was made with Keep::all_over_data before the layers that
/// use them run. While a layer runs forward, those of the next layers with parameters are under
/// way; while it runs backward, those of the layers before it. Losses and parameters have the same
/// bits as without it, and ranks send the same.
///
/// The layers in the block of a Recompute that runs forward again gather for themselves, and so
/// does the first layer of each forward and backward. A rank needs memory for the parameters of
/// `layers_ahead` more layers; `state_of_rank` tells it. Allocates nothing after the first steps.
template <class Context>
class GathersAhead {
  using T = typename Context::dtype;

 public:
  explicit GathersAhead(Run<Context>& run)
      : run_(run), slots_(std::min(run.options.layers_ahead, run.of_layers.size())) {}
  GathersAhead(const GathersAhead&) = delete;
  GathersAhead& operator=(const GathersAhead&) = delete;

  ///@{
  /// As Traffic says.
  void begin_pass(bool goes_backward) { goes_backward_ = goes_backward; }
  Buffer take(std::size_t number) {
    Slot& slot = slot_of(number);
    if (!slot.is_for(number)) begin(slot, number);
    Buffer values = finish(slot);
    if (!run_.pass.is_again) begin_behind(number);
    return values;
  }
  void progress() {
    for (Slot& slot : slots_)
      for (Gather& one : slot.gathers) one.progress();
  }
  void discard() noexcept {
    for (Slot& slot : slots_) discard(slot);
  }
  ///@}

 private:
  using Move = moves::AllGather<T>;
  using Gather = begun_along_t<typename Context::communicator, Move>;

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
    const ParametersOfLayer& layer = run_.of_layers[number];
    slot.values = run_.pool.take(room_for(run_.parameters, layer.slots, layer.count) * sizeof(T));
    slot.behind = number + 1;
    T* whole = static_cast<T*>(slot.values.data());
    for (const ParameterSlot& one : std::span(layer.slots, layer.count)) {
      gather_stored_by(run_, run_.parameters, one, run_.parameters.used(one), whole,
                       [&](std::span<const T> mine, std::span<T> all) {
                         const Counts counts = stored_counts(run_, run_.parameters, one);
                         slot.gathers.push_back(Move{mine, all, counts}.begun_on(
                             run_.all_ranks.along(MeshAxis::data)));
                       });
      whole += run_.parameters.padded(one.size);
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

}  // namespace shardwise::detail

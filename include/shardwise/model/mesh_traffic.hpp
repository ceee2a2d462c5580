#pragma once
// The traffic of a model on a mesh whose ranks can have collectives under way.

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "shardwise/backend/backend.hpp"
#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/model/gathers_ahead.hpp"
#include "shardwise/model/parameter_layout.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/sums_of_buckets.hpp"
#include "shardwise/model/sums_of_layers.hpp"
#include "shardwise/model/traffic.hpp"

namespace shardwise::detail {

/// Whether collectives of these ranks can be under way along the axes of a mesh.
template <class C>
consteval bool can_have_traffic() {
  if constexpr (MeshCommunicator<C>) {
    return BeginsCollectives<
        std::remove_reference_t<decltype(std::declval<C&>().along(MeshAxis::data))>>;
  } else {
    return false;
  }
}

/// What the ModelOptions of the run say.
template <class Context>
class MeshTraffic final : public Traffic {
 public:
  /// Once the parameters have their places.
  explicit MeshTraffic(Run<Context>& run) : gathers_(run), of_layers_(run), of_buckets_(run) {}

  ///@{
  /// As Traffic says.
  void begin_pass(bool goes_backward) override { gathers_.begin_pass(goes_backward); }
  void finish_pass() override { of_layers_.finish(); }
  void end_pass() noexcept override {
    gathers_.discard();
    of_layers_.discard();
  }
  void progress() override {
    gathers_.progress();
    of_layers_.progress();
    of_buckets_.progress();
  }
  Buffer take(std::size_t number) override { return gathers_.take(number); }
  void sum_shares(std::span<const ParameterSlot> parameters, Buffer&& gradients,
                  Write write) override {
    of_layers_.begin(parameters, std::move(gradients), write);
  }
  void written(std::span<const ParameterSlot> parameters) override {
    of_buckets_.written(parameters);
  }
  void begin_last_batch(bool shares_are_cut) override { of_buckets_.begin(shares_are_cut); }
  void end_last_batch() override { of_buckets_.end(); }
  void discard_step() noexcept override { of_buckets_.discard(); }
  ///@}

 private:
  GathersAhead<Context> gathers_;
  SumsOfLayers<Context> of_layers_;
  SumsOfBuckets<Context> of_buckets_;
};

}  // namespace shardwise::detail

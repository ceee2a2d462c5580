#pragma once
// Gradients of layers that ranks sum into shares while they compute the layers before.

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/backend/backend.hpp"
#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/detail/begun.hpp"
#include "shardwise/comm/starts_all_reduce.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/model/meanwhile.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/whole_parameters.hpp"

namespace shardwise::detail {

/// The sums of a layer that ranks store shares of, under way while the layer before it goes
/// backward, if the ranks can begin or start a reduce-scatter.
template <class Context>
class OverlappedReduction final : public GradientReducer {
  using T = typename Context::dtype;
  using Ranks = typename Context::communicator;
  using Group = std::remove_reference_t<decltype(std::declval<Ranks&>().along(MeshAxis::data))>;
  using Move = typename ShareOfSums<Context>::Move;
  using Sum = decltype(begun(std::declval<Group&>(), std::declval<const Move&>()));

 public:
  explicit OverlappedReduction(Run<Context>& run) : run_(run) {
    constexpr bool can_begin = BeginsCollectives<Group> || StartsReduceScatter<Group>;
    if (can_begin && run_.parameters.stores_share_of_gradients()) run_.reducer = this;
  }
  OverlappedReduction(const OverlappedReduction&) = delete;
  OverlappedReduction& operator=(const OverlappedReduction&) = delete;

  ///@{
  /// For layers, see GradientReducer.
  void begin(std::span<const ParameterSlot> parameters, Buffer&& gradients, Write write) override {
    finish();
    write_ = write;
    gradients_ = std::move(gradients);
    const T* whole = static_cast<const T*>(gradients_.data());
    for (const ParameterSlot& slot : parameters) {
      reduce_to_stored_by(run_, slot, std::span(whole, slot.size),
                          [&](ShareOfSums<Context>&& share, const Move& move) {
                            shares_.push_back(std::move(share));
                            sums_.push_back(begun(run_.all_ranks.along(MeshAxis::data), move));
                          });
      whole += slot.size;
    }
    if (ShareOfSums<Context>::is_rounded) gradients_ = {};
  }
  void progress() override {
    for (Sum& sum : sums_) sum.progress();
  }
  void finish() override {
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      sums_[i].finish();
      shares_[i].store(run_, write_);
    }
    discard();
  }
  void discard() noexcept override {
    sums_.clear();
    shares_.clear();
    gradients_ = {};
  }
  ///@}

 private:
  Run<Context>& run_;
  Write write_ = Write::replace;  // how the sums are added to the share
  Buffer gradients_{};            // of the layer, if these are what is sent
  std::vector<ShareOfSums<Context>> shares_{};
  std::vector<Sum> sums_{};  // before what they write to is released
};

}  // namespace shardwise::detail

#pragma once
// Gradients of layers that ranks sum into shares while they compute the layers before.

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "shardwise/backend/backend.hpp"
#include "shardwise/comm/detail/begun.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/whole_parameters.hpp"

namespace shardwise::detail {

/// In a model whose Keep cuts gradients, layers sum them along `data` in each backward: the sums of
/// a layer are under way while the layer before it goes backward, and end when the sums of that one
/// begin. A rank needs memory for the gradients of one more layer; `state_of_rank` tells it. Sums
/// along the other axes come after backward.
template <class Context>
class SumsOfLayers {
  using T = typename Context::dtype;
  using Move = typename ShareOfSums<Context>::Move;
  using Sum = begun_along_t<typename Context::communicator, Move>;

 public:
  explicit SumsOfLayers(Run<Context>& run) : run_(run) {}
  SumsOfLayers(const SumsOfLayers&) = delete;
  SumsOfLayers& operator=(const SumsOfLayers&) = delete;

  ///@{
  /// As Traffic says of sums of shares.
  void begin(std::span<const ParameterSlot> parameters, Buffer&& gradients, Write write) {
    finish();
    write_ = write;
    gradients_ = std::move(gradients);
    const T* whole = static_cast<const T*>(gradients_.data());
    for (const ParameterSlot& slot : parameters) {
      reduce_to_stored_by(run_, slot, std::span(whole, slot.size),
                          [&](ShareOfSums<Context>&& share, const Move& move) {
                            shares_.push_back(std::move(share));
                            sums_.push_back(move.begun_on(run_.all_ranks.along(MeshAxis::data)));
                          });
      whole += run_.parameters.padded(slot.size);
    }
    if (ShareOfSums<Context>::is_rounded) gradients_ = {};
  }
  void progress() {
    for (Sum& sum : sums_) sum.progress();
  }
  void finish() {
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      sums_[i].finish();
      shares_[i].store(run_, write_);
    }
    discard();
  }
  void discard() noexcept {
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

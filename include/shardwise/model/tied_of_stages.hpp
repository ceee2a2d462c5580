#pragma once
// Parameters that a stage of a pipeline shares with other stages, for walks that count.

#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/type_set.hpp"
#include "shardwise/model/tied.hpp"
#include "shardwise/model/tied_parameters.hpp"

namespace shardwise::detail {

/// The parameters that the layers of a stage share with other stages. They count once in each
/// stage, also where their owner is in another one.
class TiedOfStages {
 public:
  /// Reads what they are, if these are the layers of a stage.
  template <class L>
  constexpr void begin([[maybe_unused]] const L& layers) {
    if constexpr (requires { layers.tied_over_stages(); })
      for (const TiedOverStages& one : layers.tied_over_stages()) tags_.add(one.tag);
  }

  /// Whether L is the first layer of the walk that uses some of them.
  template <class L>
  constexpr bool begins_with() {
    if constexpr (is_tied<L>)
      for (const void*& tag : tags_)
        if (tag == &identity_of<typename L::tied_tag>) {
          tag = nullptr;
          return true;
        }
    return false;
  }

 private:
  GrowingList<const void*> tags_{};  // of those that no layer so far used
};

}  // namespace shardwise::detail

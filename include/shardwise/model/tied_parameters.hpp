#pragma once
// The uses of tied parameters: those of several layers.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/model/parameter_layout.hpp"

namespace shardwise::detail {

/// One use of tied parameters; the default is for parameters that are not tied.
struct TiedUse {
  std::size_t owner = static_cast<std::size_t>(-1);  ///< counted in model order
  std::size_t number = 0;  ///< the number of this use of the owner's parameters
};

/// The parameters of one owner that layers of several stages of a pipeline use. Each of these
/// stages has them, under the name of the owner and with its initial values.
struct TiedOverStages {
  const void* tag = nullptr;           ///< identifies them
  bool is_owned_here = false;          ///< whether the owner is in this stage
  std::string path{};                  ///< of the owner in the whole model: "0."
  std::uint64_t ordinal = 0;           ///< of the owner in the whole model
  std::vector<ParameterSpec> specs{};  ///< of the owner's parameters
  /// Their places in the memory of the stage's model: first only how it holds them, and their
  /// sizes.
  std::vector<ParameterSlot> slots{};
};

/// The parameters of one model that several layers use, found by their tag while it is bound.
class TiedParameters {
 public:
  /// Whether a layer so far owns parameters with this tag.
  bool has_owner(const void* tag) const;

  /// Adds an owner and the places of its parameters.
  TiedUse own(const void* tag, std::span<const ParameterSlot> slots,
              std::span<const ParameterSpec> specs);

  /// Finds the last owner of this tag, and writes the places of its parameters to `slots`.
  /// throws  shape_error if they have other shapes than `specs`
  TiedUse borrow(const void* tag, std::span<ParameterSlot> slots,
                 std::span<const ParameterSpec> specs);

  /// Whether a gradient is added to that of a later use, which has already run backward.
  bool adds(const TiedUse& use) const {
    return use.owner < owners_.size() && use.number + 1 < owners_[use.owner].uses;
  }

 private:
  struct Owner {
    const void* tag;
    detail::GrowingList<ParameterSlot> slots;
    detail::GrowingList<ParameterSpec> specs;
    std::size_t uses;
  };
  detail::GrowingList<Owner> owners_;
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE bool TiedParameters::has_owner(const void* tag) const {
  for (const Owner& owner : owners_)
    if (owner.tag == tag) return true;
  return false;
}

SHARDWISE_INLINE TiedUse TiedParameters::own(const void* tag, std::span<const ParameterSlot> slots,
                                             std::span<const ParameterSpec> specs) {
  Owner owner{tag, {}, {}, 1};
  for (const ParameterSlot& slot : slots) owner.slots.add(slot);
  for (const ParameterSpec& spec : specs) owner.specs.add(spec);
  owners_.add(std::move(owner));
  return {owners_.size() - 1, 0};
}

SHARDWISE_INLINE TiedUse TiedParameters::borrow(const void* tag, std::span<ParameterSlot> slots,
                                                std::span<const ParameterSpec> specs) {
  std::size_t behind = owners_.size();
  while (behind > 0 && owners_[behind - 1].tag != tag) --behind;
  if (behind == 0)
    throw argument_error("the layer borrows parameters that no layer in front of it owns");
  Owner& found = owners_[behind - 1];
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const ParameterSpec& owned = found.specs[i];
    if (!(owned.shape == specs[i].shape)) {
      throw shape_error({"the layer borrows a parameter ", owned.name, " of shape ", owned.shape,
                         ", but would have one of shape ", specs[i].shape,
                         ": both layers must be of the same sizes"});
    }
    slots[i] = found.slots[i];
  }
  return {behind - 1, found.uses++};
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

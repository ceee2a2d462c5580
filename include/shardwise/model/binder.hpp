#pragma once
// What a model gives its layers when it binds them: places of parameters, names and ordinals.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>

#include "shardwise/core/location.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/core/type_set.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/model/flight.hpp"
#include "shardwise/model/frame.hpp"
#include "shardwise/model/parameter.hpp"
#include "shardwise/model/parameter_list.hpp"
#include "shardwise/model/parameter_memory.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/tied_parameters.hpp"

namespace shardwise::detail {

/// Gives ordinals and room for parameters to layers in model order.
template <class Context>
struct Binder {
  Run<Context>& run;                           ///< of the model
  detail::ParameterList<Context>& parameters;  ///< of the model, to be filled
  detail::SavedByParts& saved;                 ///< of its first flight, to be filled
  const Location& model;                       ///< around all parts
  std::uint64_t next_ordinal = 0;              ///< of the next layer with parameters or randomness
  Shape given{};                               ///< the shape that the part bound last gives
  std::size_t recomputed = 0;  ///< identifies the Recompute that is bound; 0 for none
  std::span<TiedOverStages> tied_over_stages{};  ///< of which this model is one

  /// The prefix of the names of parameters of the part that is bound now: "3.1.".
  std::string path() const { return path_to(current_location, model); }

  /// Copies `given`; the copy is longer than a call.
  [[gnu::noinline]] void put_given(Shape& slot) const { slot = given; }

  /// Reserves memory for parameters that several stages have, before any layer does: in the order
  /// of their owners, which is the same on all of these stages.
  void tie_over_stages(std::span<TiedOverStages> all) {
    tied_over_stages = all;
    for (TiedOverStages& one : all)
      for (std::size_t i = 0; i < one.specs.size(); ++i)
        one.slots[i] =
            run.parameters.reserve(one.slots[i].size, one.slots[i].holding, one.specs[i].decays);
  }

  /// The next layer of a model on a mesh uses these parameters; returns its number. The places must
  /// stay where they are.
  template <std::size_t N>
  std::size_t add_layer(const std::array<ParameterSlot, N>& slots) {
    run.of_layers.add({slots.data(), N, recomputed});
    return run.of_layers.size() - 1;
  }

  /// Those with this tag that this layer owns; null if no other stage has them.
  const TiedOverStages* owned_for_stages(const void* tag) const {
    for (const TiedOverStages& one : tied_over_stages)
      if (one.tag == tag && one.is_owned_here && one.path == path()) return &one;
    return nullptr;
  }
  /// Those with this tag whose owner is in an earlier stage; null once this model has them.
  const TiedOverStages* owned_elsewhere(const void* tag) const {
    if (run.tied.has_owner(tag)) return nullptr;
    for (const TiedOverStages& one : tied_over_stages)
      if (one.tag == tag && !one.is_owned_here) return &one;
    return nullptr;
  }
};

/// A parameter that a layer uses as the ParameterUse Use says, with the types that a model of this
/// Context has for it.
template <class Context, class Use>
using parameter_of =
    Parameter<typename Context::precision::parameter, typename Context::precision::gradient,
              typename Use::stored, typename Use::used>;

/// A ParameterUse as a value: for code that is compiled once for all of them.
struct UseValue {
  LayoutValue stored;
  Holding holding;
  const void* type;  ///< `identity_of` the type of its Parameter
};
template <class Context, class Use>
inline constexpr UseValue use_value{layout_value<typename Use::stored>, holding_of<Use>,
                                    &identity_of<parameter_of<Context, Use>>};

/// Lists parameter `number` of the layer with this path, if its part on this rank has these runs.
template <class Context>
void list(Binder<Context>& binder, const UseValue& use, const std::string& path,
          const ParameterSpec& spec, const GlobalRuns& runs, const ParameterSlot& slot,
          std::uint64_t ordinal, std::uint64_t number) {
  binder.parameters.add({sentence({path, spec.name}), spec, slot, ordinal, number, runs, use.type});
}

/// Reserves memory for parameter `number` of a layer, and lists it.
template <class Context>
ParameterSlot reserve(Binder<Context>& binder, const UseValue& use, const ParameterSpec& spec,
                      std::uint64_t ordinal, std::uint64_t number) {
  const GlobalRuns runs = global_runs(use.stored, spec.shape, binder.run.place());
  const ParameterSlot slot = binder.run.parameters.reserve(runs.size(), use.holding, spec.decays);
  list(binder, use, binder.path(), spec, runs, slot, ordinal, number);
  return slot;
}

/// The parameters that a layer owns or, if it borrows them, that it may own in place of a layer in
/// another stage of a pipeline; `Uses` is the std::tuple of their uses.
template <class Context, class Uses>
struct OwnParameters;
template <class Context, class... Uses>
struct OwnParameters<Context, std::tuple<Uses...>> {
  using types =
      decltype((TypeSet<>{} | ... | TypeSet<parameter_of<Context, Uses>>{}));  ///< as shown

  static constexpr std::array<UseValue, sizeof...(Uses)> values{use_value<Context, Uses>...};

  /// Reserves memory for all of them.
  static void reserve(Binder<Context>& binder, BoundParameters<sizeof...(Uses)>& bound,
                      std::uint64_t ordinal) {
    for (std::size_t i = 0; i < bound.slots.size(); ++i)
      bound.slots[i] = detail::reserve(binder, values[i], bound.specs[i], ordinal, i);
  }

  /// Lists those that several stages have, which have their memory.
  static void list(Binder<Context>& binder, const TiedOverStages& tied) {
    for (std::size_t i = 0; i < tied.specs.size(); ++i)
      detail::list(binder, values[i], tied.path, tied.specs[i],
                   global_runs(values[i].stored, tied.specs[i].shape, binder.run.place()),
                   tied.slots[i], tied.ordinal, i);
  }
};

}  // namespace shardwise::detail

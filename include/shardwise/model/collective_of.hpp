#pragma once
// The collective that a redistribution calls, for plans and observers.

#include <optional>
#include <string>

#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/model/collective_list.hpp"
#include "shardwise/model/observer.hpp"
#include "shardwise/redistribute/movement.hpp"

namespace shardwise::detail {

template <SplitLayout L>
constexpr HaloOf halo_of(const Shape& shape) {
  const Dim& dim = shape[split_position<L>(shape)];
  return {L::window.on(dim), dim.units};
}

/// Of R on a tensor of global shape `shape`; nothing if R does not communicate.
template <class R>
constexpr std::optional<Collective> collective_of(const Shape& shape, Dtype dtype) {
  if constexpr (R::operation().has_value()) {
    Collective entry{*R::operation(), shape.elements(), dtype};
    if constexpr (R::movement == Movement::halo_exchange)
      entry.halo = halo_of<typename R::to>(shape);
    if constexpr (R::movement == Movement::halo_sum) entry.halo = halo_of<typename R::from>(shape);
    return entry;
  } else {
    return std::nullopt;
  }
}

/// "Partial -> Invariant".
template <class R>
std::string name_of_redistribution() {
  return layout_name<typename R::from>() + " -> " + layout_name<typename R::to>();
}

/// R on such a tensor, for observers.
template <class R>
Work redistributing(const Shape& shape, Dtype dtype) {
  const auto entry = collective_of<R>(shape, dtype);
  if (!entry) return {Work::Kind::move, name_of_redistribution<R>, 0, {}};
  return {Work::Kind::collective, name_of_redistribution<R>, 0, *entry};
}

}  // namespace shardwise::detail

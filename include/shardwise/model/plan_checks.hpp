#pragma once
// Errors for wrong questions to a plan, before anything is computed.

#include <concepts>
#include <type_traits>

#include "shardwise/core/mesh.hpp"
#include "shardwise/model/layer_checks.hpp"

namespace shardwise::detail {

/// The mesh of a number of ranks, which are along `tensor`, or of a mesh.
template <auto Ranks>
consteval mesh mesh_of() {
  if constexpr (std::same_as<std::remove_const_t<decltype(Ranks)>, mesh>) {
    return Ranks;
  } else {
    static_assert(Ranks >= 1,
                  "a model is asked about on Ranks ranks, of which there must be at least 1: "
                  "plan<Mlp, 4>(batch{64}).");
    return {.tensor = Ranks};
  }
}

/// The model L, if its type has all of its sizes.
template <class L>
constexpr L model_by_type() {
  static_assert(must_be_layer<0, L>());
  static_assert(HasAllSizes<L>,
                "the type L leaves sizes open that are `dynamic`, so the compiler cannot say what "
                "it sends or holds. Put the sizes into the type, or make an object of it and ask "
                "that: plan_of<Ends<Invariant, Invariant>, Train>(model, ranks, shape).");
  return L{};
}

}  // namespace shardwise::detail

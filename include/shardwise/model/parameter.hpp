#pragma once
// A parameter as a model's visitors see it.

#include <cstdint>
#include <string>

#include "shardwise/core/philox.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise {

/// Whether the gradient of a parameter is one summand on each rank until it is settled.
template <class Use>
inline constexpr bool owes_reduction = Use::debt::movement == Movement::all_reduce;

/// One parameter of a model: its name ("2.weight"), its global shape, and this rank's part of it.
template <class T, Layout Stored, Layout Used>
struct Parameter {
  using stored = Stored;
  using used = Used;

  std::string name;
  ParameterSpec spec;
  View<T, Stored> value;
  View<T, dual_t<Stored>> gradient;  ///< whole once settled; no memory in a forward-only model
  RandomStream initial_stream;       ///< what its initial values are drawn from
};

namespace detail {

template <class Use, class Context>
auto parameter_at(Run<Context>& run, const std::string& path, const ParameterSpec& spec,
                  const ParameterSlot& slot, std::uint64_t ordinal, std::uint64_t number) {
  using T = typename Context::dtype;
  using Stored = typename Use::stored;
  auto& memory = run.parameters;
  const std::size_t position = memory.position(slot);
  T* gradient = memory.gradients == nullptr ? nullptr : memory.gradients + position;
  return Parameter<T, Stored, typename Use::used>{
      path + std::string(spec.name), spec,
      View<T, Stored>(memory.values + position, spec.shape, run.place()),
      View<T, dual_t<Stored>>(gradient, spec.shape, run.place()),
      RandomStream(run.seed, ordinal, 0, number)};
}

}  // namespace detail

}  // namespace shardwise

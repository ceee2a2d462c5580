#pragma once
// A parameter as a model's visitors see it.

#include <cstddef>
#include <cstdint>
#include <string>

#include "shardwise/core/philox.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise {

/// One parameter of a model: its name ("2.weight"), its global shape, and this rank's part of it,
/// in the dtypes T and G that the model has for parameters and for gradients.
template <Real T, Real G, Layout Stored, Layout Used>
struct Parameter {
  using stored = Stored;  ///< how the ranks hold it
  using used = Used;      ///< how the layer uses it

  std::string name;                  ///< in the model: "2.weight"
  ParameterSpec spec;                ///< its global shape, and how it begins
  View<T, Stored> value;             ///< this rank's part
  View<G, dual_t<Stored>> gradient;  ///< whole once settled; no memory in a forward-only model
  RandomStream initial_stream;       ///< what its initial values are drawn from
};

/// What a layer keeps from step to step beside parameters, such as running statistics: its name
/// ("1.running_mean"), and this rank's part of it.
template <Real T, Layout L>
struct NamedBuffer {
  std::string name;  ///< in the model: "1.running_mean"
  View<T, L> value;  ///< this rank's part
};

namespace detail {

/// What names begin with in part `number` of a composition: "3.1." in front of "weight".
inline std::string path_of_part(const std::string& path, std::size_t number) {
  return sentence({path, number, "."});
}

/// Calls f(Parameter) with the parameter that lies in `slot`; `path` ends in ".".
template <class Use, class Context, class F>
void visit_parameter(Run<Context>& run, const std::string& path, const ParameterSpec& spec,
                     const ParameterSlot& slot, std::uint64_t ordinal, std::uint64_t number, F& f) {
  using T = typename Context::precision::parameter;
  using G = typename Context::precision::gradient;
  using Stored = typename Use::stored;
  f(Parameter<T, G, Stored, typename Use::used>{
      sentence({path, spec.name}), spec,
      View<T, Stored>(run.parameters.value(slot), spec.shape, run.place()),
      View<G, dual_t<Stored>>(run.parameters.gradient_of(slot), spec.shape, run.place()),
      RandomStream(run.seed, ordinal, 0, number)});
}

}  // namespace detail

}  // namespace shardwise

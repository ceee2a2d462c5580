#pragma once
// A parameter for the visitors of a model.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shardwise/core/error.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/parameter_memory.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise {

/// One parameter of a model: its name ("2.weight"), its global shape, and this rank's part of it,
/// in the model's dtypes T for parameters and G for gradients.
template <Real T, Real G, Layout Stored, Layout Used>
struct Parameter {
  using stored = Stored;  ///< how the ranks hold it
  using used = Used;      ///< how the layer uses it

  std::string name;                  ///< in the model: "2.weight"
  ParameterSpec spec;                ///< its global shape, and the rule of its initial values
  View<T, Stored> value;             ///< this rank's part
  View<G, dual_t<Stored>> gradient;  ///< complete after settling; no memory in a forward-only model
  RandomStream initial_stream;       ///< the random numbers of its initial values
};

/// A tensor besides parameters that a layer keeps from step to step, such as running statistics:
/// its name ("1.running_mean"), and this rank's part of it.
template <Real T, Layout L>
struct NamedBuffer {
  std::string name;  ///< in the model: "1.running_mean"
  View<T, L> value;  ///< this rank's part
};

namespace detail {

/// The prefix of names in part `number` of a composition: "3.1." before "weight".
inline std::string path_of_part(const std::string& path, std::size_t number) {
  return sentence({path, number, "."});
}

/// A parameter in the list of all parameters of a model, made when the model is bound.
struct ListedParameter {
  std::string name;       ///< in the model
  ParameterSpec spec;     ///< of the layer
  ParameterSlot slot;     ///< its place in memory
  std::uint64_t ordinal;  ///< of its layer; selects its initial values
  std::uint64_t number;   ///< in its layer
  const void* type;       ///< `identity_of` the type of its Parameter
};

/// The listed parameter, as a P.
template <class P, class Context>
P shown(Run<Context>& run, const ListedParameter& listed) {
  const ParameterSpec& spec = listed.spec;
  return {listed.name,
          spec,
          {run.parameters.value(listed.slot), spec.shape, run.place()},
          {run.parameters.gradient_of(listed.slot), spec.shape, run.place()},
          RandomStream(run.seed, listed.ordinal, 0, listed.number)};
}

/// throws   argument_error for an unknown name, with the known ones and the model's name
inline const ListedParameter& named(const std::vector<ListedParameter>& all,
                                    const std::string& name, std::string (*model)()) {
  std::string names;
  for (const ListedParameter& one : all) {
    if (one.name == name) return one;
    names += (names.empty() ? "" : ", ") + one.name;
  }
  throw argument_error({model(), " has no parameter named '", name, "'; it has ", names});
}

}  // namespace detail

}  // namespace shardwise

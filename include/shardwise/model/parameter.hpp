#pragma once
// A parameter as a model's visitors see it.

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

/// A parameter of a model in the list of all, which is made while the model is bound.
struct ListedParameter {
  std::string name;       ///< in the model
  ParameterSpec spec;     ///< as the layer says
  ParameterSlot slot;     ///< where it lies
  std::uint64_t ordinal;  ///< of its layer, which keys its initial values
  std::uint64_t number;   ///< in its layer
  const void* type;       ///< `identity_of` the Parameter that it is shown as
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

/// throws   argument_error for a name that is not there, with those that are and the model's name
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

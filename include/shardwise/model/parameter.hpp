#pragma once
// A parameter for the visitors of a model.

#include <cstddef>
#include <string>

#include "shardwise/core/location.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/parameter_layout.hpp"

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
  detail::ParameterSlot slot;        ///< its place in the memory of the rank's parameters
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

/// The prefix of names in the part of a model at the location `part`.
std::string path_to(const Location* part, const Location& model);

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE std::string path_to(const Location* part, const Location& model) {
  if (part == &model) return {};
  std::string outer = path_to(part->outer, model);
  if (part->number == Location::no_number) return outer;
  return path_of_part(outer, static_cast<std::size_t>(part->number));
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

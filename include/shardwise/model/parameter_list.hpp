#pragma once
// The parameters of a model by their names, shown in their types.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shardwise/comm/mark.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/core/type_set.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/parameter.hpp"
#include "shardwise/model/parameter_memory.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/redistribute/run.hpp"

namespace shardwise::detail {

///@{
/// What to show of a parameter.
struct ValueOf {
  auto operator()(const auto& parameter) const { return parameter.value; }
};
struct GradientOf {
  auto operator()(const auto& parameter) const { return parameter.gradient; }
};
///@}

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

/// All parameters of a model, in model order. The model says which types they have, in the TypeSet
/// `types`, so that the compiler makes the list once for all models of a Context.
template <class Context>
class ParameterList {
 public:
  using parameter_dtype = typename Context::precision::parameter;  ///< of the parameters

  /// For the model of this run; `model` is its name, for errors.
  ParameterList(Run<Context>& run, std::string (*model)()) : run_(run), model_(model) {}

  /// Adds one to the end.
  void add(ListedParameter&& one) { all_.push_back(std::move(one)); }

  /// Calls f with every parameter in its type, one of Ps.
  template <class F, class... Ps>
  void visit(TypeSet<Ps...> types, F&& f) {
    for (const ListedParameter& one : all_) show(one, f, types);
  }

  /// The whole tensor part(parameter) of the parameter `name`.
  template <class T, class Part, class Types>
  Tensor<T, Invariant> gather(const std::string& name, Part part, Types types) {
    Tensor<T, Invariant> whole{Shape{}};
    show_named(
        name,
        [&](auto& parameter) {
          whole = Tensor<T, Invariant>(parameter.spec.shape, run_.place());
          const auto mine = part(parameter);
          using Part_ = decltype(mine);
          const View<const T, typename Part_::layout> block(mine);
          if constexpr (DeviceBackend<typename Context::backend>) {
            Value<T, Invariant> there(run_.pool, parameter.spec.shape, run_.place());
            redistribute(run_.backend, run_.ranks, run_.pool, block, there.writable());
            detail::to_host(run_.backend, there.view().data(), whole.size(), whole.data());
          } else {
            redistribute(run_.backend, run_.ranks, run_.pool, block, whole.view());
          }
        },
        types);
    return whole;
  }

  /// Sets the parameter `name` from a whole tensor in the backend's memory.
  template <class Types>
  void set(const std::string& name, View<const parameter_dtype, Invariant> whole, Types types) {
    show_named(
        name,
        [&](auto& parameter) {
          redistribute(run_.backend, run_.ranks, run_.pool, whole, parameter.value);
        },
        types);
  }

  /// A hash of this name of the architecture, and of the names and sizes of the parameters.
  std::uint32_t fingerprint(std::string_view architecture) const {
    std::uint32_t hash = 0;
    const auto add = [&](std::string_view text) {
      for (const char letter : text) hash = mixed(hash, static_cast<unsigned char>(letter));
    };
    add(architecture);
    for (const ListedParameter& one : all_) {
      add(one.name);
      for (std::size_t i = 0; i < one.spec.shape.rank(); ++i)
        hash = mixed(hash, static_cast<std::uint32_t>(one.spec.shape[i].extent()));
    }
    return hash;
  }

 private:
  template <class F, class... Ps>
  void show([[maybe_unused]] const ListedParameter& listed, [[maybe_unused]] F& f, TypeSet<Ps...>) {
    run_.parameters.collect(run_.backend);
    (show_as<Ps>(listed, f), ...);
  }
  template <class P, class F>
  void show_as(const ListedParameter& listed, F& f) {
    if (listed.type != &identity_of<P>) return;
    P parameter = shown<P>(run_, listed);
    f(parameter);
  }

  template <class F, class Types>
  void show_named(const std::string& name, F&& f, Types types) {
    show(named(all_, name, model_), f, types);
  }

  Run<Context>& run_;
  std::string (*model_)();
  std::vector<ListedParameter> all_;
};

}  // namespace shardwise::detail

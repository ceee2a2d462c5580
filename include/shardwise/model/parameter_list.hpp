#pragma once
// The parameters of a model by their names, shown in their types.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "shardwise/comm/mark.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/core/type_set.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/global_runs.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/model/whole_parameters.hpp"
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
  GlobalRuns runs;        ///< of the rank's part in the whole parameter
  const void* type;       ///< `identity_of` the type of its Parameter
};

/// What to do for a visitor where ranks store shares of parameters or of gradients.
enum class Shown : std::uint8_t {
  whole,     ///< gather the value and the gradient, and store what the visitor made of the share
  made,      ///< give memory without numbers for the value, and store what the visitor wrote there
  as_stored  ///< nothing: views begin at the first element of the share, and end too late
};

/// Memory of a parameter while it is shown.
template <class Context>
struct ShownMemory {
  using T = typename Context::precision::parameter;
  using G = typename Context::precision::gradient;

  T* value;
  G* gradient;
  Buffer values{};     ///< if `value` is not where the rank stores it
  Buffer gradients{};  ///< if `gradient` is not
};

template <class Context>
ShownMemory<Context> shown_memory(Run<Context>& run, const ParameterSlot& slot,
                                  [[maybe_unused]] Shown how) {
  ShownMemory<Context> memory{run.parameters.value(slot), run.parameters.gradient_of(slot)};
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    const auto gather = [&](const ParameterLayout& layout, auto*& part, Buffer& whole) {
      if (!layout.stores_share() || how == Shown::as_stored) return;
      whole = run.pool.take(slot.size * sizeof(*part));
      auto* const all = static_cast<std::remove_reference_t<decltype(part)>>(whole.data());
      if (how == Shown::whole) gather_stored(run, layout, slot, std::as_const(part), all);
      part = all;
    };
    gather(run.parameters, memory.value, memory.values);
    if (how == Shown::whole && memory.gradient != nullptr)
      gather(run.parameters.gradient_layout(), memory.gradient, memory.gradients);
  }
  return memory;
}

/// Stores the share of this rank.
template <class Context>
void store_shown([[maybe_unused]] Run<Context>& run, [[maybe_unused]] const ParameterSlot& slot,
                 [[maybe_unused]] const ShownMemory<Context>& memory) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    const auto store = [&]<class N>(const ParameterLayout& layout, const N* whole,
                                    const Buffer& gathered, N* to) {
      if (gathered.data() == nullptr) return;
      const Interval mine = layout.stored(slot);
      run.backend.for_each(mine.size, RoundTo<N, N>{whole + mine.offset, to});
    };
    store(run.parameters, memory.value, memory.values, run.parameters.value(slot));
    store(run.parameters.gradient_layout(), memory.gradient, memory.gradients,
          run.parameters.gradient_of(slot));
  }
}

/// The random numbers of its initial values.
template <class Context>
RandomStream initial_stream(const Run<Context>& run, const ListedParameter& listed) {
  return RandomStream(run.seed, listed.ordinal, 0, listed.number);
}

/// The listed parameter, as a P in this memory.
template <class P, class Context>
P shown(const Run<Context>& run, const ListedParameter& listed,
        const ShownMemory<Context>& memory) {
  const ParameterSpec& spec = listed.spec;
  return {listed.name,
          spec,
          {memory.value, spec.shape, run.place()},
          {memory.gradient, spec.shape, run.place()},
          initial_stream(run, listed),
          listed.slot};
}

/// throws   argument_error for a name that two parameters of the model have
[[noreturn, gnu::cold]] void refuse_second(const std::string& name, std::string (*model)());

/// The number of the parameter with this name. Looks at number `begin` first, so that the time to
/// look up all of many parameters, one after the other, does not grow with its square.
std::size_t number_of(const GrowingList<ListedParameter>& all, const std::string& name,
                      std::size_t begin, std::string (*model)());

/// All parameters of a model, in model order. The model says which types they have, in the TypeSet
/// `types`, so that the compiler makes the list once for all models of a Context.
template <class Context>
class ParameterList {
 public:
  using parameter_dtype = typename Context::precision::parameter;  ///< of the parameters

  /// For the model of this run; `model` is its name, for errors.
  ParameterList(Run<Context>& run, std::string (*model)()) : run_(run), model_(model) {}

  /// Adds one to the end.
  /// throws   argument_error if another one has its name
  void add(ListedParameter&& one) {
    for (const ListedParameter& before : all_)
      if (before.name == one.name) refuse_second(one.name, model_);
    all_.add(std::move(one));
  }

  /// Sets all of them to their initial values.
  void begin() {
    for (const ListedParameter& one : all_) {
      const ShownMemory<Context> memory = shown_memory(run_, one.slot, Shown::made);
      initialize(run_.backend, one.runs, memory.value, one.spec.begins(one.spec.fans),
                 initial_stream(run_, one));
      store_shown(run_, one.slot, memory);
    }
  }

  /// Calls f with every parameter in its type, one of Ps.
  template <class F, class... Ps>
  void visit(TypeSet<Ps...> types, F&& f, Shown how = Shown::whole) {
    for (const ListedParameter& one : all_) show(one, f, how, types);
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
        Shown::whole, types);
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
        Shown::made, types);
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
  void show(const ListedParameter& listed, [[maybe_unused]] F& f, Shown how, TypeSet<Ps...>) {
    run_.parameters.collect(run_.backend);
    const ShownMemory<Context> memory = shown_memory(run_, listed.slot, how);
    (show_as<Ps>(listed, memory, f), ...);
    store_shown(run_, listed.slot, memory);
  }
  template <class P, class F>
  void show_as(const ListedParameter& listed, const ShownMemory<Context>& memory, F& f) {
    if (listed.type != &identity_of<P>) return;
    P parameter = shown<P>(run_, listed, memory);
    f(parameter);
  }

  template <class F, class Types>
  void show_named(const std::string& name, F&& f, Shown how, Types types) {
    last_named_ = number_of(all_, name, last_named_, model_);
    show(all_[last_named_], f, how, types);
  }

  Run<Context>& run_;
  std::string (*model_)();
  GrowingList<ListedParameter> all_;
  std::size_t last_named_ = 0;  // the number of the parameter that was looked up last
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

// throws   argument_error for an unknown name, with the known ones and the model's name
[[noreturn, gnu::cold]] SHARDWISE_INLINE void refuse_name(const GrowingList<ListedParameter>& all,
                                                          const std::string& name,
                                                          std::string (*model)()) {
  std::string names;
  for (const ListedParameter& one : all) append(names, {names.empty() ? "" : ", ", one.name});
  throw argument_error({model(), " has no parameter named '", name, "'; it has ", names});
}

SHARDWISE_INLINE void refuse_second(const std::string& name, std::string (*model)()) {
  throw argument_error({model(), " has two parameters named '", name,
                        "', so that files and Model::set would take one for the other; give each "
                        "a name of its own in its layer's parameter_specs"});
}

SHARDWISE_INLINE std::size_t number_of(const GrowingList<ListedParameter>& all,
                                       const std::string& name, std::size_t begin,
                                       std::string (*model)()) {
  for (std::size_t i = begin; i < begin + all.size(); ++i) {
    const std::size_t number = i % all.size();
    if (all[number].name == name) return number;
  }
  refuse_name(all, name, model);
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

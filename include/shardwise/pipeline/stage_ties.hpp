#pragma once
// Parameters that layers of several stages of a pipeline use.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "shardwise/core/error.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/type_set.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/model/parameter.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/tied_checks.hpp"
#include "shardwise/model/tied_parameters.hpp"
#include "shardwise/model/walk.hpp"
#include "shardwise/pipeline/cut.hpp"

namespace shardwise::detail {

/// What stages of a pipeline share with each other.
struct StageTies {
  std::set<std::size_t> stages{};      ///< that share parameters
  std::vector<TiedOverStages> here{};  ///< what one stage has of them
};

/// Finds the parameters that layers of several stages use, in a walk through the whole model.
struct TieFinder : WalkVisitor {
  /// `cut` has the places where later stages begin; `rank` is a place along `tensor`.
  TieFinder(std::span<const CutPlace> places, Place rank) : cut(places), along_tensor(rank) {}

  std::span<const CutPlace> cut;
  Place along_tensor;
  std::string path{};
  std::vector<std::size_t> numbers{};  // of the parts around the layer, from the outermost on
  std::uint64_t next_ordinal = 0;

  /// The parameters of one owner, and the stages of the layers that use them.
  struct Owner {
    TiedOverStages parameters;
    std::size_t stage;
    std::set<std::size_t> users;
  };
  std::vector<Owner> owners{};

  void enter(std::size_t number) {
    numbers.push_back(number);
    path = path_of_part(path, number);
  }
  void leave() {
    path.resize(path.size() - path_of_part("", numbers.back()).size());
    numbers.pop_back();
  }
  template <class R, bool, class X>
  void redistribution(const Shape&) {}

  template <class L, Layout In, bool>
  void layer(const L& layer, const Shape& in, const Shape&) {
    constexpr bool owns = std::tuple_size_v < parameters_t < L, In >>> 0 && !borrows_parameters<L>;
    const std::uint64_t ordinal = owns || draws_random<L> ? next_ordinal++ : 0;
    if constexpr (is_tied<L>) {
      const void* tag = &identity_of<typename L::tied_tag>;
      if constexpr (owns) add_owner<L, In>(layer, in, tag, ordinal);
      const auto owner = std::find_if(owners.rbegin(), owners.rend(),
                                      [&](const Owner& one) { return one.parameters.tag == tag; });
      owner->users.insert(stage());
    }
  }
  template <class Op, Layout In, bool, std::size_t N>
  void merge(const std::array<Nothing, N>&, const std::array<Shape, N>&, const Shape&) {
    if constexpr (draws_random<Op>) ++next_ordinal;
  }

  /// The stage of the layer at which the walk is.
  std::size_t stage() const {
    const CutPlace here{numbers[0], numbers.size() > 1 ? numbers[1] : 0};
    return static_cast<std::size_t>(
        std::count_if(cut.begin(), cut.end(), [&](const CutPlace& one) { return !(here < one); }));
  }

  /// What the stage `number` shares with others.
  /// throws   argument_error if parameters are shared by other stages than others are
  StageTies of_stage(std::size_t number) const {
    StageTies ties;
    for (const Owner& owner : owners) {
      if (owner.users.size() < 2) continue;
      if (!ties.stages.empty() && ties.stages != owner.users)
        throw argument_error({"pipeline: the parameters of layer ", owner.parameters.path,
                              " are shared by other stages than those of an owner before it; cut "
                              "the model so that the same stages share all of them"});
      ties.stages = owner.users;
      if (!owner.users.contains(number)) continue;
      ties.here.push_back(owner.parameters);
      ties.here.back().is_owned_here = owner.stage == number;
    }
    return ties;
  }

 private:
  template <class L, Layout In>
  void add_owner(const L& layer, const Shape& in, const void* tag, std::uint64_t ordinal) {
    TiedOverStages one{.tag = tag, .path = path, .ordinal = ordinal};
    for_each_parameter<L, In>(layer, in, [&](const ParameterSpec& spec, auto use) {
      using Use = typename decltype(use)::type;
      one.specs.push_back(spec);
      one.slots.push_back(
          {.holding = on_stages(holding_of<Use>),
           .size = local_shape<typename Use::stored>(spec.shape, along_tensor).elements()});
    });
    owners.push_back({one, stage(), {}});
  }
};

/// What stage `number` of `whole`, which is cut at these places, shares with other stages.
/// throws   as TieFinder::of_stage
template <class E, class L>
StageTies stage_ties([[maybe_unused]] const L& whole,
                     [[maybe_unused]] const shapes_t<typename E::offered>& in,
                     [[maybe_unused]] std::span<const CutPlace> cut,
                     [[maybe_unused]] std::size_t number, [[maybe_unused]] Place along_tensor) {
  if constexpr (has_tied<L>) {
    TieFinder finder(cut, along_tensor);
    walk<E, Train>(whole, in, finder);
    return finder.of_stage(number);
  } else {
    return {};
  }
}

}  // namespace shardwise::detail

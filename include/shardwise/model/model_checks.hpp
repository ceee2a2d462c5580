#pragma once
// Errors for wrong types and arguments of a Model, before any other code uses them.

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/model/context.hpp"
#include "shardwise/model/decide.hpp"
#include "shardwise/model/layer_checks.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/redistribute/run.hpp"

namespace shardwise::detail {

/// The layers of one stage of a pipeline: they say where their random numbers begin in the whole.
template <class L>
concept LayersOfStage = requires(const L& layers) {
  layers.first_ordinal();
};

template <class E>
inline constexpr bool is_ends = false;
template <EndLayout Offered, EndLayout Wanted>
inline constexpr bool is_ends<Ends<Offered, Wanted>> = true;

/// Whether L is plain, or a SamplesOverMesh.
template <class L>
inline constexpr bool is_of_model = PlainLayout<L>;
template <MeshLayout L>
inline constexpr bool is_of_model<L> = std::same_as<L, typename end_layout<L>::on_mesh>;
template <class... Ls>
inline constexpr bool is_of_model<Layouts<Ls...>> = (is_of_model<Ls> && ...);

template <class E>
inline constexpr bool is_ends_over_mesh = false;
template <EndLayout Offered, EndLayout Wanted>
inline constexpr bool is_ends_over_mesh<Ends<Offered, Wanted>> =
    !(is_of_model<Offered> && is_of_model<Wanted>);

/// The error for another type in place of the Context of a Model.
template <class Ctx>
consteval bool must_be_context() {
  static_assert(
      requires {
        typename Ctx::precision;
        typename Ctx::backend;
        typename Ctx::communicator;
      },
      "Model<Architecture, Ctx, E, Use> takes a Context second, which names dtype, "
      "backend and communicator: Context<float, Reference, ThreadCommunicator>.");
  static_assert(reaches_tensors<typename Ctx::communicator, typename Ctx::backend>,
                "the collectives of this communicator take no memory of this backend: one is of a "
                "device, the other of the host. Name NcclCommunicator or DeviceThreadCommunicator "
                "beside Cuda, and ThreadCommunicator or MpiCommunicator beside the others; "
                "SingleRank goes with all.");
  return true;
}

/// The error for a wrong order or wrong types of the other arguments of Model.
template <class E, class Use>
consteval bool must_be_model() {
  static_assert(is_ends<E>,
                "Model<Architecture, Ctx, E, Use> takes the layouts of its two ends third: "
                "Ends<Invariant, Invariant>, unless its input or output is laid out otherwise.");
  static_assert(!is_ends_over_mesh<E>,
                "layers have layouts over one axis of ranks, which is `tensor` on a mesh: name "
                "plain layouts in the Ends of the Model, or SamplesOverMesh of them, which on "
                "MeshRanks are the layouts of its input and output: its samples are cut over "
                "`data`.");
  static_assert(ModelUse<Use>,
                "Model<Architecture, Ctx, E, Use> takes what it is used for fourth: Train, "
                "TrainWithInputGradient or ForwardOnly.");
  return true;
}

/// The error for ends with another number of tensors than the model has.
template <class Architecture, class E>
consteval bool ends_must_fit() {
  constexpr std::size_t named_in = tensors_of<typename E::offered>;
  constexpr std::size_t named_out = tensors_of<typename E::wanted>;
  static_assert(
      named_in == input_count_of<Architecture> && named_out == output_count_of<Architecture>,
      "the Ends of the Model name layouts of another number of inputs or outputs than "
      "its Architecture has. Name one for each of several: Ends<Layouts<Invariant, "
      "Invariant>, Invariant> is for two inputs and one output.");
  return true;
}

/// The architecture, if its type has all of its sizes.
template <class Architecture>
Architecture architecture_by_type() {
  static_assert(HasAllSizes<Architecture>,
                "the type Architecture leaves sizes open that are `dynamic`: make an object of it "
                "with those sizes, and give it to the Model first: Model model(architecture, "
                "ranks, seed).");
  return Architecture{};
}

/// Whether a Model of communicator C can begin with these arguments.
template <class C, class Ranks, class Start>
inline constexpr bool may_begin_with =
    std::convertible_to<Ranks&, C&>&& std::convertible_to<const Start&, Seed>;

/// The error for a Model with another communicator than its Context's, or without a Seed. It never
/// runs.
template <class C, class Ranks, class Start>
C& must_begin_with() {
  static_assert(std::convertible_to<Ranks&, C&>,
                "the Model is given Ranks first, but its Context names the communicator C. Give it "
                "an object of C, by name: Model model(ranks, Seed{1}).");
  static_assert(
      std::convertible_to<const Start&, Seed>,
      "the Model is given a Start in place of the Seed of its random numbers. Write Model "
      "model(ranks, Seed{1}), and with sizes given at run time Model model(architecture, "
      "ranks, Seed{1}).");
  throw argument_error("no model");
}
template <class C, class Architecture, class First, class Second, class Third>
C& must_begin_with() {
  if constexpr (std::convertible_to<First, const Architecture&>) {
    return must_begin_with<C, std::remove_reference_t<Second>, Third>();
  } else {
    return must_begin_with<C, std::remove_reference_t<First>, std::remove_cvref_t<Second>>();
  }
}

/// The error for a forward or backward of a model that is not trained.
template <class Use>
consteval bool must_train() {
  static_assert(Use::trains,
                "a model whose use is ForwardOnly keeps nothing for a backward: call evaluate, or "
                "make the Model for Train.");
  return true;
}

/// The tensor and the model that are checked, for an error.
struct ToCheck {
  std::string (*model)();
  std::string_view what;
  std::size_t number;
  std::size_t count;

  /// " number 1", if there are several.
  std::string suffix() const { return count == 1 ? "" : " number " + std::to_string(number); }
};

/// throws   argument_error for the part of another rank, which would be read past its end
void require_own_part(const ToCheck& of, Place given, Place here);
void require_own_part(const ToCheck& of, const MeshPlace& given, const MeshPlace& here);

/// throws   argument_error for a mesh with several ranks along `pipeline`
void require_mesh_of_models(std::string (*model)(), const mesh& sizes);

/// throws   argument_error for a mesh on which a rank does not have all tokens of a batch
void require_all_tokens(const mesh& sizes);

/// throws   shape_error for an input with another number of tokens or rows than the first one,
///          where each rank has some of them
void require_cut_of_batch(std::string (*model)(), const Shape& input, const Shape& batch);

/// The error for a flight that a model does not have.
[[noreturn, gnu::cold]] void refuse_flight(std::string (*model)(), std::size_t number,
                                           std::size_t flights);

/// throws   argument_error for a backward without a forward before it in its flight, or of a
///          settled step
void require_may_go_backward(std::string (*model)(), bool has_gone_forward, std::size_t flight,
                             GradientState gradients);

/// throws   argument_error for backward_parameters without a backward_input before it in its
///          flight, or of a settled step
void require_may_end_backward(std::string (*model)(), bool awaits_parameters, std::size_t flight,
                              GradientState gradients);

/// throws   argument_error for a forward in a flight that awaits backward_parameters
[[noreturn, gnu::cold]] void refuse_forward(std::string (*model)(), std::size_t flight);

/// throws   shape_error for a gradient whose shape is not that of the output
void require_gradient_of_output(const ToCheck& of, const Shape& given, const Shape& output);

/// The error for an input that is not of type Input.
template <class Given, class Input>
consteval bool input_must_fit() {
  static_assert(std::convertible_to<const Given&, Input>,
                "the model takes a View<const T, L>, and Given is none. T is the dtype of its "
                "Context and L the first of its Ends: lay the input out so, or name its layout in "
                "the Model: Ends<layout of the input, Invariant>. Several inputs are given as a "
                "std::tuple of views.");
  return true;
}

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void require_own_part(const ToCheck& of, Place given, Place here) {
  if (given == here) return;
  throw argument_error({of.model(), ": the ", of.what, of.suffix(), " is the part of rank ",
                        given.rank, " of ", given.size, ", but this is rank ", here.rank, " of ",
                        here.size, ": make it with place_of(ranks) of the model's communicator"});
}

SHARDWISE_INLINE void require_own_part(const ToCheck& of, const MeshPlace& given,
                                       const MeshPlace& here) {
  if (given == here) return;
  throw argument_error({of.model(), ": the ", of.what, of.suffix(), " is the part of ", given,
                        ", but this is ", here,
                        ": make it with ranks.place() of the model's communicator"});
}

SHARDWISE_INLINE void require_mesh_of_models(std::string (*model)(), const mesh& sizes) {
  if (sizes.pipeline == 1) return;
  throw argument_error({model(), ": the mesh ", sizes, " has ", sizes.pipeline,
                        " ranks along pipeline, but a Model has all layers on each rank: give "
                        "those ranks to other axes, or cut the model by on_pipeline_stage"});
}

SHARDWISE_INLINE void require_all_tokens(const mesh& sizes) {
  if (sizes.replica == 1 && sizes.data == 1 && sizes.context == 1) return;
  throw argument_error({"evaluate with a KeyValueCache: on the mesh ", sizes,
                        " a rank has some of the tokens of a batch, but a cache follows all: make "
                        "a model for the ranks along tensor"});
}

SHARDWISE_INLINE void require_cut_of_batch(std::string (*model)(), const Shape& input,
                                           const Shape& batch) {
  const Dim first = batch.rank() == 1 ? Dim{} : batch.back();  // batch 0: of no rows or tokens
  const Axis cut = axis_over_context(input);
  const bool is_cut_alike =
      cut == first.axis && (cut == Axis::batch || extent_of(input, cut) == first.units);
  if (is_cut_alike || (batch.has(Axis::height) && cut == Axis::batch)) return;
  throw shape_error(
      {model(), ": an input is a tensor ", input, ", but the first one has ", first.units,
       batch.has(Axis::height) ? " rows" : " tokens",
       " in a sample: where ranks along context have other ones, all other inputs must "
       "have as many"});
}

SHARDWISE_INLINE void refuse_flight(std::string (*model)(), std::size_t number,
                                    std::size_t flights) {
  throw argument_error({model(), ": there is no flight ", number, ": the model has ", flights,
                        ", counted from 0. Call reserve_flights(", number + 1, ") before"});
}

SHARDWISE_INLINE void require_may_go_backward(std::string (*model)(), bool has_gone_forward,
                                              std::size_t flight, GradientState gradients) {
  if (!has_gone_forward) {
    throw argument_error(
        {model(),
         ": backward without a forward before it: run forward once for each "
         "backward, with no evaluate in between",
         flight == 0 ? "" : sentence({", in the same flight; this is flight ", flight})});
  }
  if (gradients == GradientState::summed_over_samples ||
      gradients == GradientState::share_summed_over_samples) {
    throw argument_error({model(),
                          ": backward after the batch that completed the samples of its Step, "
                          "whose gradients are summed over ranks already. Let the batch that "
                          "completes these be the last one"});
  }
  if (gradients == GradientState::applied) {
    throw argument_error({model(),
                          ": backward after an optimizer's step() has applied the gradients: call "
                          "next_step() first, or end_step() in place of both"});
  }
  if (gradients == GradientState::whole) {
    throw argument_error({model(),
                          ": backward after settle_gradients: its summands would be added to "
                          "whole gradients. Settle once, after the last backward of a step"});
  }
}

SHARDWISE_INLINE void require_may_end_backward(std::string (*model)(), bool awaits_parameters,
                                               std::size_t flight, GradientState gradients) {
  if (awaits_parameters && gradients == GradientState::summands) return;
  throw argument_error({model(), ": backward_parameters in flight ", flight,
                        awaits_parameters
                            ? " after settle_gradients: its summands would be added to "
                              "sums. Call it before that, or before the batch that completes a "
                              "Step with overlapped sums"
                            : " without a backward_input before it: run it once for each "
                              "backward_input"});
}

SHARDWISE_INLINE void refuse_forward(std::string (*model)(), std::size_t flight) {
  throw argument_error({model(), ": flight ", flight,
                        " awaits backward_parameters, and a forward would discard what that needs. "
                        "Call it before, use another flight, or discard the step"});
}

SHARDWISE_INLINE void require_gradient_of_output(const ToCheck& of, const Shape& given,
                                                 const Shape& output) {
  if (given == output) return;
  throw shape_error({of.model(), ": the ", of.what, of.suffix(), " is a tensor ", given,
                     ", but the output was ", output, ": they must be equal"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

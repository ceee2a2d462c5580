#pragma once
// The stages of a pipeline on one rank: models of ranges of the layers.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/model_options.hpp"
#include "shardwise/model/stages.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/model/values.hpp"
#include "shardwise/pipeline/cut.hpp"
#include "shardwise/pipeline/rank.hpp"
#include "shardwise/pipeline/stage_ends.hpp"
#include "shardwise/pipeline/stage_layers.hpp"
#include "shardwise/pipeline/stage_ties.hpp"
#include "shardwise/train/losses.hpp"

namespace shardwise {

namespace detail {

/// What the model M of a stage, which is not the first one, is given by the stage before.
template <class M>
using ValueFromBefore = Value<typename M::dtype, nth_layout_t<typename M::input_layout, 0>>;

/// What one micro-batch under way keeps on a stage besides what is in its flight of the model M.
template <class M>
struct MicroBatchUnderWay {
  bool is_free = true;  ///< whether there is none
  std::size_t number = 0;
  ValueFromBefore<M> input{};                   ///< unless the stage is the first one
  std::span<const typename M::dtype> output{};  ///< unless it is the last; memory of the model
  loss_gradient_t<M> gradient{};                ///< on the last stage, of the loss
  values_t<typename M::dtype, duals_t<typename M::output_layout>> dy{};  ///< in backward
};

}  // namespace detail

/// Stage number `Stage` of a pipeline, on one rank of it: see `on_pipeline_stage`. Its model has
/// the layers of this stage alone, on the ranks of this stage, with the names, initial values and
/// random numbers that these layers have in the whole.
template <class Architecture, class Ctx, auto Cut, class E, std::size_t Stage>
class PipelineStage {
  static constexpr detail::StageRange range = detail::stage_range<Architecture, Cut, Stage>;
  using Inputs = detail::StageInputs<Architecture, range>;
  using Ranks = typename Ctx::communicator;

 public:
  static constexpr std::size_t number = Stage;           ///< counted from 0
  static constexpr bool is_first = Stage == 0;           ///< whether it has the model's input
  static constexpr bool is_last = Stage == Cut.size();   ///< whether it has the model's output
  static constexpr std::size_t stages = Cut.size() + 1;  ///< of the pipeline

  /// The layers of the stage.
  using layers = detail::StageLayers<Architecture, range>;
  /// The model of the stage.
  using model_type =
      Model<layers, Ctx, typename detail::stage_ends<Architecture, E, Cut, Stage>::type,
            detail::stage_use<Inputs>>;
  /// The input of the whole model, a view or a std::tuple of several, on every stage; a stage reads
  /// the elements of those that its own layers read, and of others the shape only.
  using input_view = detail::input_views_t<Architecture, typename Ctx::dtype,
                                           detail::layout_at_end_t<Ranks, typename E::offered>>;
  /// Its shape, or an array of several.
  using input_shapes = shapes_t<typename E::offered>;

  /// A collective of all ranks of the mesh; each makes its own stages.
  PipelineStage(const Architecture& whole, detail::PipelineRank<Ranks>& rank, Seed seed,
                const input_shapes& in, typename Ctx::backend& backend)
      : whole_(whole),
        rank_(rank),
        ties_(ties_for(whole, in, rank.all_ranks().place())),
        model_(layers_for(whole, in, ties_.here), rank.ranks(), seed, input_shape(in), backend,
               rank.options()) {
    auto& run = model_.run();
    run.stage = {Stage, stages, rank.stages(), true, &rank.all_ranks()};
    if (ties_.stages.empty()) return;
    auto& tied = rank.tied_line(ties_.stages);
    if (ties_.here.empty()) return;
    run.stage.tied_ranks = &tied;
    run.stage.counts_tied = *ties_.stages.begin() == Stage;
  }

  /// The model of the stage.
  model_type& model() { return model_; }
  /// Calls f(PipelineStage&): it is the only stage of its rank, or one of PipelineChunks.
  template <class F>
  void for_each(F&& f) {
    f(*this);
  }
  /// The ranks of the mesh.
  Ranks& all_ranks() { return rank_.all_ranks(); }
  /// The ranks with the same place in all axes but `pipeline`.
  auto& line() { return rank_.line(); }
  /// The place of the rank in views of this stage.
  const MeshPlace& place() const { return rank_.ranks().place(); }
  /// The shape of the input of the stage's model for a batch of this shape; an array if it has
  /// several inputs: of the value from the stage before, and then of the inputs that it reads.
  auto input_shape(const input_shapes& in) const {
    const auto all = detail::slots_from<Architecture::inputs>(in);
    if constexpr (is_first) {
      return in_order(
          all, [] { return std::tuple{}; }, typename Inputs::Numbers{});
    } else {
      return in_order(
          all, [&] { return std::tuple{shape_from_before(in)}; }, typename Inputs::Numbers{});
    }
  }
  /// The shape of the value that the stage before gives for a batch of this shape.
  Shape shape_from_before(const input_shapes& in) const requires(!is_first) {
    return detail::shape_at<range.begin>(whole_, in);
  }
  /// The input of the stage's model, if this is the first stage: of a batch x.
  typename model_type::input_view input_of(const input_view& x) const requires(is_first) {
    return detail::with_tensors(x, [&](const auto&... each) {
      return in_order(
          std::tie(each...), [] { return std::tuple{}; }, typename Inputs::Numbers{});
    });
  }
  /// The same on other stages: of a batch x, and of `before`, a view of the value from the stage
  /// before.
  template <class View>
  typename model_type::input_view input_of(const input_view& x, const View& before) const {
    return detail::with_tensors(x, [&](const auto&... each) {
      return in_order(
          std::tie(each...), [&] { return std::tuple{before}; }, typename Inputs::Numbers{});
    });
  }

  /// Throws shape_error, on each rank, if a stage cannot take these shapes of a batch over
  /// `context`.
  void require_cut_alike(const input_shapes& in) const {
    if (place()[MeshAxis::context].size > 1) detail::require_cut_alike<E, Cut>(whole_, in);
  }

  ///@{
  /// For `train_pipeline_step`: what it keeps from step to step.
  detail::PipelineRank<Ranks>& of_rank() { return rank_; }
  auto& under_way() { return under_way_; }
  auto runs() { return detail::runs_of(model_); }
  ///@}

 private:
  static detail::StageTies ties_for(const Architecture& whole, const input_shapes& in,
                                    const MeshPlace& place) {
    return detail::stage_ties<E>(whole, in, Cut, Stage, place[MeshAxis::tensor]);
  }

  /// What first() gives, and then those of `all` that the stage reads; one by itself, and several
  /// as a std::tuple or, of shapes, as a std::array.
  template <class All, class First, std::size_t... Ks>
  static auto in_order(const All& all, First first, std::index_sequence<Ks...>) {
    auto each = std::tuple_cat(first(), std::tuple{std::get<Inputs::numbers[Ks]>(all)...});
    if constexpr (Inputs::count == 1) {
      return std::get<0>(each);
    } else if constexpr (std::same_as<std::tuple_element_t<0, decltype(each)>, Shape>) {
      return std::apply([](const auto&... one) { return std::array{one...}; }, each);
    } else {
      return each;
    }
  }

  /// Looks at all layers of the whole.
  static layers layers_for(const Architecture& whole, const input_shapes& in,
                           const std::vector<detail::TiedOverStages>& tied) {
    try {
      return layers(whole, detail::ordinals_before<range.begin, E>(whole, in), tied);
    } catch (error& e) {
      e.add_place(detail::name_of<Architecture>());
      throw;
    }
  }

  Architecture whole_;
  detail::PipelineRank<Ranks>& rank_;
  detail::StageTies ties_;
  model_type model_;
  std::vector<detail::MicroBatchUnderWay<model_type>> under_way_{};  // by flight
};

namespace detail {

/// A member of a class that has one for each stage.
template <class Stage, class Member>
struct OfStage {
  Member member;
};

}  // namespace detail

/// Several stages of a pipeline on one rank, its chunks: see `on_pipeline_stage`. Each has a model
/// of its own. A step trains all of them.
template <class... Stages>
class PipelineChunks : detail::OfStage<Stages, Stages>... {
  using First = std::tuple_element_t<0, std::tuple<Stages...>>;

 public:
  /// The input of the whole model, as of a PipelineStage.
  using input_view = typename First::input_view;

  /// A collective of all ranks of the mesh; each makes its own stages.
  template <class Architecture, class Rank, class Backend>
  PipelineChunks(const Architecture& whole, Rank& rank, Seed seed,
                 const typename First::input_shapes& in, Backend& backend)
      : detail::OfStage<Stages, Stages>{Stages(whole, rank, seed, in, backend)}... {}

  /// One of its stages.
  template <class Stage>
  Stage& stage() {
    return static_cast<detail::OfStage<Stage, Stage>&>(*this).member;
  }
  /// Calls f(PipelineStage) for each stage.
  template <class F>
  void for_each(F&& f) {
    (f(stage<Stages>()), ...);
  }

  ///@{
  /// As of a PipelineStage.
  auto& of_rank() { return stage<First>().of_rank(); }
  auto runs() {
    using Context = typename First::model_type::context;
    return detail::Runs<Context, sizeof...(Stages)>{{&stage<Stages>().model().run()...}};
  }
  ///@}
  /// The number of the step, from 1 on.
  std::uint64_t step() { return stage<First>().model().step(); }

  /// The ranks of the mesh.
  auto& all_ranks() { return stage<First>().all_ranks(); }
  /// The ranks with the same place in all axes but `pipeline`.
  auto& line() { return stage<First>().line(); }
  /// The place of the rank in views of its stages.
  const MeshPlace& place() const {
    return static_cast<const detail::OfStage<First, First>&>(*this).member.place();
  }
};

namespace detail {

/// The stages of rank `Rank` of so many, as on_pipeline_stage gives them.
template <class Architecture, class Ctx, auto Cut, class E, std::size_t Rank, std::size_t Ranks,
          class Chunks>
struct stages_of_rank;
template <class Architecture, class Ctx, auto Cut, class E, std::size_t Rank, std::size_t Ranks>
struct stages_of_rank<Architecture, Ctx, Cut, E, Rank, Ranks, std::index_sequence<0>> {
  using type = PipelineStage<Architecture, Ctx, Cut, E, Rank>;
};
template <class Architecture, class Ctx, auto Cut, class E, std::size_t Rank, std::size_t Ranks,
          std::size_t... Chunks>
struct stages_of_rank<Architecture, Ctx, Cut, E, Rank, Ranks, std::index_sequence<Chunks...>> {
  using type = PipelineChunks<PipelineStage<Architecture, Ctx, Cut, E, Rank + Chunks * Ranks>...>;
};

}  // namespace detail

/// Cuts `whole`, a Sequential or a Graph of one output, into stages at the places of `Cut`, a
/// std::array of CutPlace in the order of the layers, makes the stage of this rank, and calls
/// f(stage). A rank constructs only the layers of its stage. Every rank calls it, with equal
/// arguments:
///
///     constexpr std::array cut{CutPlace{1, 12}};  // before block 12 of part 1, a Repeat
///     on_pipeline_stage<Ctx, cut>(Gpt{}, ranks, Seed{1}, shape, [&](auto& stage) {
///       Optimizer optimizer(stage.model(), AdamW{});
///       loss = train_pipeline_step(stage, one_f_one_b(2, 8), inputs, labels, CrossEntropy{},
///                                  optimizer);
///     });
///
/// `Ctx` names MeshRanks, `E` the layouts at the two ends of the whole model. `in` is the shape of
/// its input, with any batch, or an array of several. Of a Graph one value goes from the parts
/// before a cut to those behind it, besides its inputs: each stage may read these, of which its
/// ranks then have the elements. Between two stages a value has the layout in which the layer in
/// front of the cut gives it, but is never a summand, forward or backward. All stages are in the
/// program of every rank; layers of one type with the same layouts are compiled once for all of
/// them. Each of several stages whose layers use the parameters of one owner, see `Owns`, has these
/// parameters under the owner's name, with the same numbers. Their gradients are summed over these
/// stages once a step.
///
/// With `Chunks` stages on each rank, for interleaved schedules, P ranks along `pipeline` have the
/// stages r, r + P, r + 2P and so on, r being the rank, and it calls f(PipelineChunks):
///
///     on_pipeline_stage<Ctx, cut, Ends<Invariant, Invariant>, 2>(gpt, ranks, seed, shape,
///                                                                [&](auto& chunks) {
///       PipelineOptimizer optimizer(chunks, AdamW{});
///       loss = train_pipeline_step(chunks, interleaved_one_f_one_b(2, 8, 2), inputs, labels,
///                                  CrossEntropy{}, optimizer);
///     });
///
/// The model of each stage has these `options`. A backend of the caller's, such as one for a GPU,
/// stands in front of f, and all stages of the rank compute with it.
///
/// sends    an all-gather of 4 bytes of each rank; what makes the groups of ranks of a stage, see
///          `MeshRanks`, with several stages on a rank one more along `pipeline`, and one of those
///          stages that share parameters
/// throws   argument_error if the mesh does not have a rank along `pipeline` for every `Chunks`
///          stages or, with several on a rank, has only one such rank; and if parameters of two
///          owners are shared by unlike sets of stages; shape_error if ranks along `context` are to
///          have different tokens of inputs of a stage with other numbers of tokens;
///          collective_error if ranks have another seed, shape or options; as Model
///@{
template <class Ctx, auto Cut, class E = Ends<Invariant, Invariant>, std::size_t Chunks = 1,
          class Architecture, class F>
void on_pipeline_stage(const Architecture& whole, typename Ctx::communicator& ranks, Seed seed,
                       const shapes_t<typename E::offered>& in, typename Ctx::backend& backend,
                       F&& f, const ModelOptions& options = {}) {
  static_assert(
      std::same_as<E, detail::ends_along_tensor_t<E>>,
      "the stages of a pipeline take no SamplesOverMesh: name plain layouts in the Ends, "
      "and give the ranks along `context` to another axis if the model takes images or its "
      "output has no tokens.");
  static_assert(detail::must_be_cut<Architecture, E, Cut>());
  constexpr std::size_t stages = Cut.size() + 1;
  static_assert(Chunks > 0 && stages % Chunks == 0,
                "Each rank has so many stages: cut the model into a multiple of that number.");
  constexpr std::size_t size = stages / Chunks;
  if (static_cast<std::size_t>(ranks.sizes().pipeline) != size)
    throw argument_error(
        {"pipeline: the cut makes ", stages, " stages, but the mesh ", ranks.sizes(), " has ",
         ranks.sizes().pipeline, " ranks along pipeline; give it one for each stage",
         Chunks == 1 ? "" : detail::sentence({" of ", Chunks, " that a rank has"})});
  if (size == 1 && Chunks > 1)
    throw argument_error("pipeline: one rank has all stages; give it a Model of all layers");
  detail::require_same_pipeline(ranks, seed, in, options);
  if (ranks.sizes().context > 1 && detail::are_known(in))
    detail::require_cut_alike<E, Cut>(whole, in);
  detail::PipelineRank rank(ranks, Chunks, options);
  const auto number = static_cast<std::size_t>(ranks.place()[MeshAxis::pipeline].rank);
  const auto run = [&]<std::size_t Rank>(std::integral_constant<std::size_t, Rank>) {
    if (Rank != number) return;
    typename detail::stages_of_rank<Architecture, Ctx, Cut, E, Rank, size,
                                    std::make_index_sequence<Chunks>>::type own(whole, rank, seed,
                                                                                in, backend);
    f(own);
  };
  [&]<std::size_t... All>(std::index_sequence<All...>) {
    (run(std::integral_constant<std::size_t, All>{}), ...);
  }
  (std::make_index_sequence<size>{});
}
template <class Ctx, auto Cut, class E = Ends<Invariant, Invariant>, std::size_t Chunks = 1,
          class Architecture, class F>
void on_pipeline_stage(const Architecture& whole, typename Ctx::communicator& ranks, Seed seed,
                       const shapes_t<typename E::offered>& in, F&& f,
                       const ModelOptions& options = {}) {
  typename Ctx::backend own;
  on_pipeline_stage<Ctx, Cut, E, Chunks>(whole, ranks, seed, in, own, f, options);
}
///@}

}  // namespace shardwise

#pragma once
// A model: an architecture bound to a context, with its parameters.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "shardwise/core/error.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/binder.hpp"
#include "shardwise/model/bound_composition.hpp"
#include "shardwise/model/bound_repeat.hpp"
#include "shardwise/model/call_options.hpp"
#include "shardwise/model/flight.hpp"
#include "shardwise/model/key_value_cache.hpp"
#include "shardwise/model/load_state.hpp"
#include "shardwise/model/model_base.hpp"
#include "shardwise/model/model_checks.hpp"
#include "shardwise/model/model_options.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/settle.hpp"
#include "shardwise/model/stages.hpp"
#include "shardwise/model/tied_checks.hpp"
#include "shardwise/model/traffic.hpp"

namespace shardwise {

namespace detail {

/// The error for a model that is to move. It never runs.
template <class M>
typename M::communicator& must_stay() {
  static_assert(!std::same_as<M, M>,
                "a Model stays where it is made: optimizers and its own parts refer to it. Keep "
                "several in a std::deque, by emplace_back, or in a std::unique_ptr each.");
  throw argument_error("no model");
}

}  // namespace detail

/// An architecture on one rank. Every rank of the communicator makes one, with equal arguments, and
/// calls its members in the same order. One thread uses a model at a time: a call that finds it in
/// a call of another thread is an argument_error, and the other one goes on.
///
/// `Architecture` is a layer or a composition, `Ctx` a Context, `GivenEnds` the layouts at the
/// model's two ends, `Use` one of Train, TrainWithInputGradient and ForwardOnly.
///
/// On a mesh, where the communicator is MeshRanks, layers and ends have their layouts along
/// `tensor`. Ranks along `data` and `replica` have different samples, and ranks along `context`
/// different tokens of each sample, or different rows of each image: the layouts of input and
/// output are `SamplesOverMesh` of those in GivenEnds, and the gradients of all parameters are also
/// summed over these axes, once for each step. Losses, gradients and weights are those of one rank.
/// Where `context` has several ranks, each layer must have a rule for parts of tokens or of rows,
/// see `Layer`; for images, GivenEnds names those layouts. The axis `pipeline` must have
/// one rank; for several stages see `on_pipeline_stage`.
///
///     Model<Mlp, Context<float, Reference, MeshRanks<ThreadCommunicator>>> model(ranks, Seed{1});
///     Tensor<float, SamplesOverMesh<Invariant>> x(shape, ranks.place());
///
/// Initial weights depend on the seed and the architecture, not on the number of ranks. Of a
/// sharded parameter, a rank holds only its part. After the first steps, steps allocate no
/// memory.
template <class Architecture, class Ctx, class GivenEnds = Ends<Invariant, Invariant>,
          class Use = Train>
class Model : public ModelBase<Ctx> {
  using Base = ModelBase<Ctx>;
  using E = detail::ends_along_tensor_t<GivenEnds>;

  static_assert(detail::must_be_model<GivenEnds, Use>());
  static_assert(detail::must_be_layer<0, Architecture>());
  static_assert(detail::ends_must_fit<Architecture, E>());
  static_assert(detail::inputs_must_have_gradients<Architecture, Use>(
      std::make_index_sequence<detail::tensors_of<typename E::offered>>{}));
  static_assert(detail::tied_must_match_in<Architecture, E>());

 public:
  ///@{
  /// The types that it was made from.
  using architecture = Architecture;
  using ends = E;
  using use = Use;
  ///@}
  ///@{
  /// Those of its Context.
  using typename Base::backend_type;
  using typename Base::communicator;
  using typename Base::dtype;
  using typename Base::gradient_dtype;
  using typename Base::parameter_dtype;
  ///@}

  ///@{
  /// The views and shapes at the model's two ends, forward and backward. Inputs have the model's
  /// dtype unless the layer that reads them has `input_element`. If E has `Layouts`, views are a
  /// std::tuple and shapes a std::array, with one element for each tensor.
  using input_layout = detail::layout_at_end_t<communicator, typename GivenEnds::offered>;
  using output_layout = detail::layout_at_end_t<communicator, typename GivenEnds::wanted>;
  using input_shapes = shapes_t<input_layout>;
  using input_view = detail::input_views_t<Architecture, dtype, input_layout>;
  using output_view = detail::views_t<const dtype, output_layout>;
  using output_gradient_view = detail::views_t<const dtype, detail::duals_t<output_layout>>;
  ///@}

  /// A model whose sizes are all in its type.
  /// sends    nothing; with Keep::all_over_data an all-gather of a number
  /// throws   argument_error for options that need a mesh, another use, or another Keep
  Model(communicator& ranks, Seed seed, const ModelOptions& options = {})
      : Model(detail::architecture_by_type<Architecture>(), ranks, seed, {}, options, Backend()) {}

  ///@{
  /// `in` is the global shape of the inputs, with a batch of any size or `dynamic`. It is needed
  /// for images, if the first layer does not know its features, if features have a grain, or if the
  /// model has several inputs. `given` is needed if some sizes are not in its type.
  /// sends    as above
  /// throws   shape_error, with the layer's place, for neighbouring layers that do not match;
  ///          memory_error
  Model(const Architecture& given, communicator& ranks, Seed seed, const input_shapes& in = {},
        const ModelOptions& options = {})
      : Model(given, ranks, seed, in, options, Backend()) {}
  Model(communicator& ranks, Seed seed, const input_shapes& in, const ModelOptions& options = {})
      : Model(detail::architecture_by_type<Architecture>(), ranks, seed, in, options, Backend()) {}
  ///@}

  ///@{
  /// A model that computes with the caller's backend, which must outlive it.
  Model(const Architecture& given, communicator& ranks, Seed seed, const input_shapes& in,
        backend_type& backend, const ModelOptions& options = {})
      : Model(given, ranks, seed, in, options, Backend(backend)) {}
  Model(communicator& ranks, Seed seed, const input_shapes& in, backend_type& backend,
        const ModelOptions& options = {})
      : Model(detail::architecture_by_type<Architecture>(), ranks, seed, in, options,
              Backend(backend)) {}
  ///@}

  /// The error for another communicator than that of its context, and for a number in place of a
  /// Seed, with any of these arguments. A shape in braces has the type that is the default here.
  template <class First, class Second, class Third = input_shapes, class Fourth = input_shapes,
            class... Rest>
  requires(!detail::may_begin_with<communicator, First, Second> &&
           !(std::convertible_to<First, const Architecture&> &&
             detail::may_begin_with<communicator, Second, Third>))
      Model(First&&, Second&&, const Third& = {}, const Fourth& = {}, const Rest&...)
      : Model(detail::must_begin_with<communicator, Architecture, First, Second, Third>(), Seed{}) {
  }

  ///@{
  /// A reader of the weights of `of`, which computes beside it, on a thread of its own: it has its
  /// own memory for all but the weights, and the numbers that `of` has, running statistics too,
  /// copied. On several ranks `ranks` are others than those of `of`, such as a RankGroup's, and
  /// each rank reads the weights that the same rank of `of` has. As many readers as you like:
  ///
  ///     Model reader(model);
  ///
  /// Until its readers end, a model is only evaluated, and it must outlive them. On SingleRank or
  /// thread ranks, on the host. Of a backend that packs weights, each reader has its own copy.
  /// sends    nothing
  /// throws   argument_error if `of` is in a call of another thread, for ranks that are those of
  ///          `of` or have another number, and later for a call that trains, changes, visits, loads
  ///          or saves the parameters of a reader, or of a model that has one
  template <class OtherUse>
  explicit Model(Model<Architecture, Ctx, GivenEnds, OtherUse>& of) : Model(of, of.ranks()) {}
  template <class OtherUse>
  Model(Model<Architecture, Ctx, GivenEnds, OtherUse>& of, communicator& ranks)
      : Model(of, ranks, of.in_call()) {}
  ///@}

  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  /// The error for a model that is to move, as in a std::vector.
  Model(Model&&) noexcept : Model(detail::must_stay<Model>(), Seed{}) {}

  /// The model's output for training: saves what backward needs, and drops elements. backward reads
  /// x again, so x must stay unchanged until then. If no backward follows, the next forward
  /// discards what this one saved. The result is valid until the next call that runs the model or
  /// ends the step; of one of several batches that are under way, until the next forward or
  /// backward of its flight, or the end of the step. Batches of a step count in the order of their
  /// forwards; their backwards may have any order.
  /// sends    `plan().forward`
  /// throws   argument_error for segments that overlap or leave their sample, and for a flight that
  ///          is not reserved; shape_error and others, with the layer's place
  output_view forward(const input_view& x,
                      const ForwardOptions& options = {}) requires(Use::trains) {
    const auto call = this->in_call();
    const Shape first = detail::global_shapes(x)[0];
    this->begin_batch(options.flight, first, detail::segments_in(options, first));
    return run_forward<Phase::forward>(detail::Purpose::train, x);
  }

  /// The error for an argument that is not such a view.
  template <class Given>
  requires(Use::trains && !std::convertible_to<const Given&, input_view>) void forward(
      const Given&, const ForwardOptions& = {}) {
    detail::input_must_fit<Given, input_view>();
  }

  ///@{
  /// The error for a model that is not trained.
  template <class Given>
  requires(!Use::trains) void forward(const Given&, const ForwardOptions& = {}) {
    detail::must_train<Use>();
  }
  template <class... Given>
  requires(!Use::trains) void backward(const Given&...) { detail::must_train<Use>(); }
  ///@}

  /// The model's output for evaluation: saves nothing, drops nothing. It is valid as long as that
  /// of a forward. With a cache, tokens follow those of the cache, to which their keys and values
  /// are added: the logits are those of the whole sequences. Each segment continues the sequence
  /// that it names, at the position behind the tokens that the cache holds of it; without segments,
  /// sample i continues sequence i. The result of a layer for a token must depend on that token
  /// alone, except in attentions and LastRows: any other takes the tokens of this call for all. If
  /// it throws, the cache holds what it held.
  /// sends    `plan().forward`, without the exchanges of layers in training only
  /// throws   as forward; with a cache argument_error for such a segment, and where a rank has not
  ///          all tokens: on a mesh with several ranks along another axis than `tensor`, for an
  ///          attention of samples that are split or of windows over tokens that are, and for one
  ///          whose tokens see later ones
  output_view evaluate(const input_view& x, const EvaluateOptions& options = {}) {
    const auto call = this->in_call();
    const Shape first = detail::global_shapes(x)[0];
    const detail::SegmentsOf segments = detail::segments_in(options, first);
    if (options.cache == nullptr) return evaluate_batch(x, first, segments);
    if constexpr (Base::is_on_mesh) detail::require_all_tokens(run_.all_ranks.sizes());
    KeyValueCache& cache = *options.cache;
    const detail::SegmentsOf given = begin(cache, segments);
    const detail::SetMeanwhile<KeyValueCache*> continued(run_.pass.cache, &cache);
    const output_view y = evaluate_batch(x, first, given);
    cache.end(run_.pool);
    return y;
  }

  /// The error for an argument that is not such a view.
  template <class Given>
  requires(!std::convertible_to<const Given&, input_view>) void evaluate(
      const Given&, const EvaluateOptions& = {}) {
    detail::input_must_fit<Given, input_view>();
  }

  /// Adds the parameters' gradients for the last forward of a flight, given the gradient of its
  /// output. Returns the gradient of its input if the model's use includes it; for several inputs a
  /// std::tuple, with Nothing for an input without a gradient. That gradient is valid until the
  /// next backward of any flight. Gradients of parameters are complete after `settle_gradients`.
  /// sends    `plan().backward`
  /// throws   argument_error without a forward in this flight since the last backward or evaluate,
  ///          and for a flight that is not reserved; shape_error if dy does not have the shape of
  ///          that output
  auto backward(const output_gradient_view& dy, Flight flight = {}) requires(Use::trains) {
    static_assert(detail::goes_backward<Architecture, Use, E>,
                  "nothing in this model has a gradient: it has no parameters, and its use does "
                  "not ask for the gradient of its input (TrainWithInputGradient does).");
    const auto call = this->in_call();
    this->take_up_batch(flight, dy);
    const auto here = detail::in_phase<Phase::backward>(run_);
    this->begin_gradients(run_.pass.leaves_parameters);
    auto dx = run_backward(dy);
    this->end_gradients();
    if constexpr (Use::input_gradient) {
      input_gradient_ = std::move(dx);
      return this->template at_end<detail::duals_t<input_layout>>(input_gradient_);
    }
  }

  ///@{
  /// `backward` in two parts, for a model on a mesh. backward_input returns what backward does, and
  /// leaves the gradients of parameters of layers with `backward_in_parts` (linear layers) to
  /// backward_parameters, but for shared ones and those in a Recompute. Several batches may be
  /// between their parts. What forward saved for these layers and the gradients of their outputs
  /// are kept until then; x and dy must stay unchanged. The first part of a step sets all
  /// gradients to zero.
  /// sends    `plan().backward`; backward_parameters nothing
  /// throws   as backward; argument_error for backward_parameters without a backward_input before
  ///          it in its flight, and for a forward in between in this flight
  auto backward_input(const output_gradient_view& dy,
                      Flight flight = {}) requires(Use::trains&& Base::is_on_mesh) {
    const auto call = this->in_call();
    const detail::SetMeanwhile later(run_.pass.leaves_parameters, true);
    return backward(dy, flight);
  }
  void backward_parameters(Flight flight = {}) requires(Use::trains&& Base::is_on_mesh) {
    const auto call = this->in_call();
    this->take_up_parameters(flight);
    const auto here = detail::in_phase<Phase::backward>(run_);
    this->begin_gradients(true);
    const auto in_model = this->in_model();
    run_.pass.flight->left.write(&run_);
    this->end_gradients();
  }
  ///@}

  /// The losses that layers have of their own, such as the balancing loss of `Experts`, summed over
  /// the layers: of the batches that ran backward in this step, and until the next backward those
  /// of the last step. The loss that a step returns is without them. Like that loss it is a mean
  /// over the samples of the step, and does not contain the loss scale; if a program calls backward
  /// without a `Step`, it is a sum over its batches. The same number on every rank. On a mesh a
  /// collective: ranks add the losses of their slices.
  /// sends    nothing; on a mesh a number along each axis that cuts samples
  double layer_losses() requires(Use::trains) {
    const auto call = this->in_call();
    return detail::sum_over_samples(
        run_, [] { return std::string("losses of layers"); }, run_.layer_losses);
  }

  /// Sums the gradients that are one summand on each rank, in buckets and once for each step. A
  /// second call does nothing. backward is allowed again only after `next_step` or `discard_step`.
  /// sends    `plan().settle`
  void settle_gradients() requires(Use::trains) {
    const auto call = this->in_call();
    detail::settle(detail::runs_of(*this));
    run_.parameters.collect(run_.backend);
  }

  /// Runs forward again on the numbers and sequences of the last batch of a flight, and discards
  /// the step. If a layer's output is not finite on some rank, throws numeric_error with the name
  /// of the first such layer, and before it with the first NaN or infinity of the input if that is
  /// not finite either.
  /// sends    `plan().forward`, and an all-reduce of one uint8 for each layer and each sum of
  ///          ranks; if a layer is found, also for each input, and two of one double if one is not
  ///          finite
  /// throws   argument_error for a flight that is not reserved
  [[gnu::cold]] void find_non_finite(const input_view& x,
                                     Flight flight = {}) requires(Use::trains) {
    const auto call = this->in_call();
    detail::FlightState& batch = this->at(flight);
    const detail::BatchPlace place = batch.place;
    this->discard_step();
    batch.place = place;
    this->run_batch(batch);
    try {
      run_forward<Phase::forward>(detail::Purpose::find_non_finite, x);
    } catch (const numeric_error& of_layer) {  // on every rank
      this->discard_step();
      this->require_finite_inputs(x, of_layer);
      throw;
    } catch (...) {
      this->discard_step();
      throw;
    }
    this->discard_step();
  }

  /// The gradients of all parameters, in the order of `values()`, in the backend's memory: with a
  /// Keep that cuts gradients those of the rank's share.
  /// Call it again after each backward: if the dtypes differ, an old span may hold the gradients of
  /// an earlier batch.
  std::span<gradient_dtype> gradients() requires(Use::trains) {
    const auto call = this->in_call();
    run_.parameters.collect(run_.backend);
    return run_.parameters.gradients();
  }

  /// Tells the model that the program has made all gradients of this step whole itself, in place of
  /// a backward and of `settle_gradients`: nothing is then summed over the ranks, and an optimizer
  /// applies them. Every rank calls it, after it has written to `gradients()`.
  void gradients_written() requires(Use::trains) {
    this->require_own_weights();
    run_.step.gradients = GradientState::whole;
  }

  /// Calls f(Parameter&) for every parameter in model order; see parameter.hpp. Where ranks store
  /// shares of values or of gradients, see Keep, a collective, whose views of these are valid
  /// during the call only: f gets the whole part that ranks along `data` have together, and the
  /// rank stores what f made of its share.
  /// sends    of each parameter, an all-gather along `data` of the value with Keep::all_over_data,
  ///          and one of the gradient, in training, with a Keep that cuts gradients
  template <class F>
  void visit_parameters(F&& f) {
    const auto call = this->in_call();
    this->require_own_weights();
    parameters_.visit(ParameterTypes{}, f);
  }

  /// The same without sending. Where ranks store shares, views begin at the first of the elements
  /// `run().parameters.stored(parameter.slot)`, of gradients
  /// `run().parameters.gradient_layout().stored(parameter.slot)`, and reach too far: f reads and
  /// writes these only.
  template <class F>
  void visit_stored(F&& f) {
    const auto call = this->in_call();
    this->require_own_weights();
    parameters_.visit(ParameterTypes{}, f, detail::Shown::as_stored);
  }

  /// Calls f(NamedBuffer&), in model order, for every tensor besides parameters that layers keep
  /// from step to step. They have no gradients; evaluation reads them, and checkpoints contain
  /// them.
  template <class F>
  void visit_buffers(F&& f) {
    const auto call = this->in_call();
    this->require_own_weights();
    bound_.visit_buffers("", [&](auto buffer) { f(buffer); });
  }

  /// The whole parameter `name`, on every rank. A collective: every rank calls it.
  /// sends    as visit_parameters for this one, and then an all-gather if the parameter is split
  /// throws   argument_error for an unknown name, with the known ones
  Tensor<parameter_dtype, Invariant> gather(const std::string& name) {
    const auto call = this->in_call();
    return parameters_.template gather<parameter_dtype>(name, detail::ValueOf{}, ParameterTypes{});
  }

  /// The whole gradient of parameter `name`, on every rank, after it is settled. A collective.
  /// sends, throws    as `gather`
  Tensor<gradient_dtype, Invariant> gather_gradient(const std::string& name) requires(Use::trains) {
    const auto call = this->in_call();
    return parameters_.template gather<gradient_dtype>(name, detail::GradientOf{},
                                                       ParameterTypes{});
  }

  /// Sets parameter `name` from a whole tensor; every rank takes its part.
  /// sends    nothing
  /// throws   argument_error for an unknown name, shape_error for another shape
  void set(const std::string& name, View<const parameter_dtype, Invariant> whole) {
    const auto call = this->in_call();
    this->require_own_weights();
    parameters_.set(name, this->to_device(whole).view(), ParameterTypes{});
    this->values_changed();
  }

  /// The collectives of a step for inputs of shape `in`. `given` is the Keep of the optimizer; it
  /// is the model's if it is left out, and so is `sending`.
  ///
  /// throws   argument_error for a Keep other than `whole` of a model that is on no mesh
  Plan plan(const input_shapes& in, std::optional<Keep> given = {}) const {
    const Keep keep = given.value_or(this->keep());
    if constexpr (Base::is_on_mesh) {
      return plan_of<E, Use>(architecture_, run_.all_ranks.sizes(), in, this->sending(), keep);
    } else {
      detail::require_whole("plan", keep);
      return plan_of<E, Use>(architecture_, run_.ranks.size(), in, this->sending());
    }
  }

  /// Its layers.
  const Architecture& layers() const { return architecture_; }

  /// A hash of the model's type, and of the names and sizes of its parameters.
  std::uint32_t fingerprint() const {
    return parameters_.fingerprint(detail::raw_type_name<Architecture>());
  }

 private:
  template <class, class, class, class>
  friend class Model;  // a reader of this one

  using BoundArchitecture = detail::Bound<Architecture, detail::Setting<Ctx, Use>, E>;
  using ParameterTypes = typename BoundArchitecture::parameter_types;
  using Gives = detail::output_layout_at_t<Architecture, E>;
  using Base::parameters_;
  using Base::run_;
  using typename Base::Backend;

  Model(const Architecture& given, communicator& ranks, Seed seed, const input_shapes& in,
        const ModelOptions& options, Backend&& backend)
      : Base(ranks, seed, options, std::move(backend),
             {detail::name_of<Architecture>, detail::IsComposition<Architecture>},
             detail::tensors_of<Gives>),
        architecture_(given),
        in_(in),
        bound_(bind(detail::known_input(architecture_, in))) {
    if constexpr (Base::is_on_mesh) set_outputs(detail::known_input(architecture_, in));
    this->begin_parameters(Use::trains);
    this->begin_traffic(Use::trains);
  }

  template <class OtherUse>
  Model(Model<Architecture, Ctx, GivenEnds, OtherUse>& of, communicator& ranks,
        [[maybe_unused]] const detail::CallOfLoaded& of_this_thread)
      : Base(ranks, of.run_.seed, {}, Backend(),
             {detail::name_of<Architecture>, detail::IsComposition<Architecture>},
             detail::tensors_of<Gives>),
        architecture_(of.architecture_),
        in_(of.in_),
        bound_(bind(detail::known_input(architecture_, in_))) {
    static_assert(detail::must_share_weights<Ctx, Use>());
    const auto here = this->in_model();
    detail::require_beside(ranks, of.run_.all_ranks);
    detail::GrowingList<const void*> buffers;
    of.bound_.visit_buffers("", [&](auto buffer) { buffers.add(buffer.value.data()); });
    std::size_t i = 0;
    bound_.visit_buffers("", [&]<class T, class L>(const NamedBuffer<T, L>& buffer) {
      std::copy_n(static_cast<const T*>(buffers[i++]), buffer.value.size(), buffer.value.data());
    });
    this->share_parameters(of);
  }

  BoundArchitecture bind(const input_shapes& in) {
    const auto here = this->in_model();
    detail::Binder<Ctx> binder{run_, parameters_, run_.pass.flight->parts, here};
    if constexpr (detail::LayersOfStage<Architecture>) {
      binder.next_ordinal = architecture_.first_ordinal();
      binder.tie_over_stages(architecture_.tied_over_stages());
    }
    if constexpr (Base::is_on_mesh)
      detail::require_cuts_over_context<input_layout>(in, run_.all_ranks.place());
    return BoundArchitecture(architecture_, in, binder);
  }

  /// Where ranks have different rows of images, an output view tells the number of all.
  /// throws   as require_cut_over_context
  void set_outputs(const input_shapes& in) {
    if (run_.all_ranks.sizes().context == 1 || !detail::are_known(in)) return;
    const auto here = this->in_model();
    const auto out = architecture_.output_shape(in);
    detail::require_cuts_over_context<output_layout>(out, run_.all_ranks.place());
    this->rows_.set_inputs(in);
    this->rows_.set_outputs(out, run_.all_ranks.sizes(), run_.counts_tokens_as_bound);
  }

  detail::SegmentsOf begin(KeyValueCache& cache, const detail::SegmentsOf& segments) {
    const auto here = this->in_model();
    return cache.begin(run_.pool, segments);
  }

  output_view evaluate_batch(const input_view& x, const Shape& first,
                             const detail::SegmentsOf& segments) {
    this->begin_batch(Flight{}, first, segments);
    return run_forward<Phase::evaluate>(detail::Purpose::evaluate, x);
  }

  /// P is Phase::forward if a backward may follow, else Phase::evaluate.
  template <Phase P>
  output_view run_forward(detail::Purpose purpose, const input_view& x) {
    if constexpr (P == Phase::forward) this->require_own_weights();
    const auto in_phase = detail::in_phase<P>(run_);
    this->begin_forward(purpose, x);
    const detail::TrafficPass beside(run_.traffic, false);
    const auto in_model = this->in_model();
    const output_view y =
        this->template keep_outputs<output_layout>(detail::converted_all<typename E::wanted>(
            run_, bound_.forward(run_, detail::values_of(detail::slice_of(x)))));
    if constexpr (P == Phase::forward) this->end_forward(detail::samples_of(x));
    return y;
  }

  detail::input_gradients_t<dtype, E, Use> run_backward(const output_gradient_view& dy) {
    const detail::TrafficPass beside(run_.traffic, true);
    const auto here = this->in_model();
    auto dx = bound_.backward(run_, detail::converted_all<detail::duals_t<Gives>, true>(
                                        run_, detail::values_of(detail::slice_of(dy))));
    run_.pass.left_until_sum.write(&run_);
    beside.finish();
    return dx;
  }

  Architecture architecture_;
  input_shapes in_;  // that it was bound to
  BoundArchitecture bound_;
  detail::input_gradients_t<dtype, E, Use> input_gradient_;
};

///@{
/// Deduces the type of a reader.
template <class A, class Ctx, class E, class Use>
Model(Model<A, Ctx, E, Use>&) -> Model<A, Ctx, E, ForwardOnly>;
template <class A, class Ctx, class E, class Use>
Model(Model<A, Ctx, E, Use>&, typename Ctx::communicator&) -> Model<A, Ctx, E, ForwardOnly>;
///@}

}  // namespace shardwise

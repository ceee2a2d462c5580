#pragma once
// A model: an architecture bound to a context, with its parameters.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/comm/check_level.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/type_set.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/binder.hpp"
#include "shardwise/model/bound_composition.hpp"
#include "shardwise/model/bound_repeat.hpp"
#include "shardwise/model/flight.hpp"
#include "shardwise/model/model_checks.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/shared_checks.hpp"

namespace shardwise {

/// An architecture on one rank. Every rank of the communicator makes one, with equal arguments, and
/// calls its members in the same order.
///
/// `Architecture` is a layer or a composition, `Ctx` a Context, `E` the layouts at the model's two
/// ends, `Use` one of Train, TrainWithInputGradient and ForwardOnly.
///
/// On a mesh, where the communicator is MeshRanks, layers and ends have their layouts along
/// `tensor`, and ranks along `data` and `replica` have different samples: the layouts of input and
/// output are `SamplesOverMesh` of those in E, and the gradients of all parameters are also summed
/// over these axes, once for each step. Losses, gradients and weights are those of one rank. The
/// axes `pipeline` and `context` must have one rank.
///
///     Model<Mlp, Context<float, Reference, MeshRanks<ThreadCommunicator>>> model(ranks, Seed{1});
///     Tensor<float, SamplesOverMesh<Invariant>> x(shape, ranks.place());
///
/// Initial weights depend on the seed and the architecture, not on the number of ranks. Of a
/// sharded parameter, a rank holds only its part. After the first steps, steps allocate no
/// memory.
template <class Architecture, class Ctx, class E = Ends<Invariant, Invariant>, class Use = Train>
class Model {
  static_assert(detail::must_be_model<Ctx, E, Use>());
  static_assert(detail::must_be_layer<0, Architecture>());
  static_assert(detail::ends_must_fit<Architecture, E>());
  static_assert(detail::inputs_must_have_gradients<Architecture, Use>(
      std::make_index_sequence<tensors_of<typename E::offered>>{}));
  static_assert(detail::all_shared_match(detail::SharingLayers<>{},
                                         detail::sharing_layers<Architecture, E>()));

 public:
  ///@{
  /// The types that it was made from.
  using architecture = Architecture;
  using context = Ctx;
  using ends = E;
  using use = Use;
  using precision = typename Ctx::precision;
  using backend_type = typename Ctx::backend;
  using communicator = typename Ctx::communicator;
  using observer_type = typename Ctx::observer;
  ///@}

  ///@{
  /// The dtypes of the values between layers, of parameters, and of their gradients.
  using dtype = typename precision::compute;
  using parameter_dtype = typename precision::parameter;
  using gradient_dtype = typename precision::gradient;
  ///@}

  ///@{
  /// The views and shapes at the model's two ends, forward and backward. Inputs have the model's
  /// dtype unless the layer that reads them has `input_element`. If E has `Layouts`, views are a
  /// std::tuple and shapes a std::array, with one element for each tensor.
  using input_layout = detail::layout_at_end_t<communicator, typename E::offered>;
  using output_layout = detail::layout_at_end_t<communicator, typename E::wanted>;
  using input_shapes = shapes_t<input_layout>;
  using input_view = input_views_t<Architecture, dtype, input_layout>;
  using output_view = views_t<const dtype, output_layout>;
  using output_gradient_view = views_t<const dtype, duals_t<output_layout>>;
  ///@}

  /// A model whose sizes are all in its type.
  Model(communicator& ranks, Seed seed)
      : Model(detail::architecture_by_type<Architecture>(), ranks, seed) {}

  /// `in` is the global shape of the inputs, with a batch of any size or `dynamic`. It is needed if
  /// the first layer does not know its features, if features have a grain, or if the model has
  /// several inputs.
  /// throws   shape_error, with the layer's place, for neighbouring layers that do not match;
  ///          memory_error
  Model(const Architecture& given, communicator& ranks, Seed seed, const input_shapes& in = {})
      : Model(given, ranks, seed, in, std::make_unique<backend_type>()) {}

  /// A model that computes with the caller's backend, which must outlive it.
  Model(const Architecture& given, communicator& ranks, Seed seed, const input_shapes& in,
        backend_type& backend)
      : Model(given, ranks, seed, in, nullptr, backend) {}

  /// The error for another communicator than that of its context, and for a number in place of a
  /// Seed.
  template <class Ranks, class Start>
  requires(!(std::convertible_to<Ranks&, communicator&> && std::convertible_to<const Start&, Seed>))
      Model(Ranks&, const Start&)
      : Model(detail::must_begin_with<communicator, Ranks, Start>(), Seed{}) {}

  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  /// The error for a model that is to move, as in a std::vector.
  Model(Model&&) noexcept : Model(detail::must_stay<Model>(), Seed{}) {}

  /// The model's output for training: saves what backward needs, and drops elements. backward reads
  /// x again, so x must stay unchanged until then. If no backward follows, the next forward
  /// discards what this one saved. The result is valid until the next call that runs the model or
  /// ends the step.
  /// `segments` are the sequences of the whole batch, the same on every rank; without them each
  /// sample is one sequence. If the model has several inputs, the rows are those of the first one.
  /// sends    `plan().forward`
  /// throws   argument_error for segments that overlap or leave their sample, and for any where
  ///          several ranks of a mesh have samples of the batch; shape_error and others, with the
  ///          layer's place
  output_view forward(input_view x, std::span<const Segment> segments = {}) requires(Use::trains) {
    return forward(Flight{}, x, segments);
  }

  /// The same for one of several batches that are under way. Its result is valid until the next
  /// forward or backward of this flight, or the end of the step. Batches of a step count in the
  /// order of their forwards; their backwards may have any order.
  /// throws   argument_error for a flight that is not reserved
  output_view forward(Flight flight, input_view x,
                      std::span<const Segment> segments = {}) requires(Use::trains) {
    begin_forward(flight, x, segments);
    return forward_for(Pass::train, x);
  }

  /// Makes room for `count` batches that went forward and not yet backward, the flights 0 to
  /// `count` - 1; never fewer than before. A model begins with one flight, which `forward(x)`,
  /// `evaluate` and `backward(dy)` use. Each takes memory for what one forward saves.
  void reserve_flights(std::size_t count) {
    while (flights_.size() < count) {
      auto parts = flights_[0].parts.another();
      flights_.emplace_back().parts = std::move(parts);
    }
  }
  /// The number of flights.
  std::size_t flights() const { return flights_.size(); }
  /// Whether a batch of another flight than flight 0 went forward and may still go backward.
  bool has_other_batches_under_way() const {
    return std::any_of(flights_.begin() + 1, flights_.end(),
                       [](const InFlight& batch) { return batch.may_go_backward; });
  }

  ///@{
  /// The error for an argument that is not such a view.
  template <class Given>
  requires(Use::trains && !std::convertible_to<const Given&, input_view>) void forward(
      const Given&, std::span<const Segment> = {}) {
    detail::input_must_fit<Given, input_view>();
  }
  template <class Given>
  requires(Use::trains && !std::convertible_to<const Given&, input_view>) void forward(
      Flight, const Given&, std::span<const Segment> = {}) {
    detail::input_must_fit<Given, input_view>();
  }
  ///@}

  ///@{
  /// The error for a model that is not trained.
  template <class... Given>
  requires(!Use::trains) void forward(const Given&...) { detail::must_train<Use>(); }
  template <class... Given>
  requires(!Use::trains) void backward(const Given&...) { detail::must_train<Use>(); }
  ///@}

  /// The model's output for evaluation: saves nothing, drops nothing. It is valid as long as that
  /// of forward.
  /// sends    `plan().forward`, without the exchanges of layers in training only
  /// throws   as forward
  output_view evaluate(input_view x, std::span<const Segment> segments = {}) {
    const auto here = detail::in_phase<Phase::evaluate>(run_);
    begin_forward(Flight{}, x, segments);
    run_.pass = Pass::evaluate;
    return run_forward(x);
  }

  /// The error for an argument that is not such a view.
  template <class Given>
  requires(!std::convertible_to<const Given&, input_view>) void evaluate(
      const Given&, std::span<const Segment> = {}) {
    detail::input_must_fit<Given, input_view>();
  }

  /// Adds the parameters' gradients for the last forward, given the gradient of its output. Returns
  /// the gradient of its input if the model's use includes it; for several inputs a std::tuple,
  /// with Nothing for an input without a gradient. That gradient is valid until the next backward
  /// of any flight. Gradients of parameters are complete after `settle_gradients`.
  /// sends    `plan().backward`
  /// throws   argument_error without a forward since the last backward or evaluate; shape_error if
  ///          dy does not have the shape of that output
  auto backward(output_gradient_view dy) requires(Use::trains) { return backward(Flight{}, dy); }

  /// The same for the batch in this flight.
  /// throws   argument_error for a flight that is not reserved
  auto backward(Flight flight, output_gradient_view dy) requires(Use::trains) {
    static_assert(goes_backward<Architecture, Use, E>,
                  "nothing in this model has a gradient: it has no parameters, and its use does "
                  "not ask for the gradient of its input (TrainWithInputGradient does).");
    InFlight& batch = at(flight);
    if constexpr (checks) check_output_gradient(batch, flight, dy);
    run_batch(batch);
    const auto here = detail::in_phase<Phase::backward>(run_);
    batch.may_go_backward = false;
    run_.pass = Pass::train;
    if (run_.gradients == GradientState::none) run_.layer_losses = 0;
    run_.parameters.begin_batch(run_.backend, run_.write());
    auto dx = at_model([&] {
      return bound_.backward(run_, detail::converted_all<duals_t<Gives>, true>(
                                       run_, detail::values_of(detail::slice_of(dy))));
    });
    batch.output = {};
    run_.parameters.end_batch(run_.backend, run_.write());
    run_.gradients = GradientState::summands;
    run_.samples_backward += batch.behind.first_sample - batch.place.first_sample;
    run_.set_place(next_);
    if constexpr (Use::input_gradient) {
      input_gradient_ = std::move(dx);
      return at_end<duals_t<input_layout>>(input_gradient_);
    }
  }

  /// The losses that layers have of their own, such as the balancing loss of `Experts`, summed over
  /// the layers: of the batches that ran backward in this step, and until the next backward those
  /// of the last step. The loss that a step returns is without them. Like that loss it is a mean
  /// over the samples of the step, and does not contain the loss scale; if a program calls backward
  /// without a `Step`, it is a sum over its batches. The same number on every rank.
  /// sends    nothing
  double layer_losses() const requires(Use::trains) { return run_.layer_losses; }

  /// Sums the gradients that are one summand on each rank, in buckets and once for each step. A
  /// second call does nothing. backward is allowed again only after `next_step` or `discard_step`.
  /// sends    `plan().settle`
  void settle_gradients() requires(Use::trains) {
    detail::settle(run_);
    run_.parameters.collect(run_.backend);
  }

  /// Settles gradients in collectives of at most `bytes` bytes, but of at least one element. Every
  /// rank calls it with the same number.
  void set_bucket_bytes(std::size_t bytes) { run_.bucket_bytes = bytes; }

  /// Sets in which steps ranks that compare their calls also compare what they were given: in the
  /// first step of this model by `Step` or `train_step`, and every `steps` after it; 0 for never.
  /// They compare seed, type and sizes of the model, and inputs and targets that are `Invariant` or
  /// `Replicated`; if these differ, the first call of the step is a collective_error that says what
  /// differs on which ranks. Every rank calls it with the same number. Sends nothing: fingerprints
  /// go with the comparison of calls. A step that compares reads inputs and targets once more, and
  /// on a device the host waits for that.
  void compare_given_every(std::uint64_t steps) { run_.compared_steps.set_every(steps); }

  /// A hash of the model's type, and of the names and sizes of its parameters.
  std::uint32_t fingerprint() const {
    std::uint32_t hash = 0;
    const auto add = [&](std::string_view text) {
      for (const char letter : text) hash = detail::mixed(hash, static_cast<unsigned char>(letter));
    };
    add(detail::raw_type_name<Architecture>());
    for (const detail::ListedParameter& one : parameters_) {
      add(one.name);
      for (std::size_t i = 0; i < one.spec.shape.rank(); ++i)
        hash = detail::mixed(hash, static_cast<std::uint32_t>(one.spec.shape[i].extent()));
    }
    return hash;
  }

  /// Ends a step: gradients start anew, and random numbers are those of the next step. A program
  /// without `Step` calls this after it has changed `values()`.
  void next_step() {
    discard_step();
    run_.begin_step(run_.step + 1);
    ++run_.version;
  }

  /// Discards what forward saved and all gradients. Parameters and the step number stay, so the
  /// step can run again.
  void discard_step() {
    for (InFlight& batch : flights_) {
      batch.parts.forget(0, batch.parts.size());
      batch.place = {};
      batch.may_go_backward = false;
      batch.output = {};
    }
    next_ = {};
    run_.forget_step();
  }

  /// Runs forward again on the numbers and sequences of the last batch, and discards the step. If a
  /// layer's output is not finite on some rank, throws numeric_error with the name of the first
  /// such layer, and before it with the first NaN or infinity of the input if that is not finite
  /// either.
  /// sends    `plan().forward`, and an all-reduce of one uint8 for each layer and each sum of
  ///          ranks; if a layer is found, also for each input, and two of one int64 if one is not
  ///          finite
  void find_non_finite(input_view x) requires(Use::trains) { find_non_finite(Flight{}, x); }

  /// The same with the numbers and sequences of the last batch in this flight.
  /// throws   argument_error for a flight that is not reserved
  void find_non_finite(Flight flight, input_view x) requires(Use::trains) {
    InFlight& batch = at(flight);
    const detail::BatchPlace place = batch.place;
    discard_step();
    batch.place = place;
    run_batch(batch);
    try {
      forward_for(Pass::find_non_finite, x);
    } catch (const numeric_error& of_layer) {  // on every rank
      discard_step();
      at_model([&] { require_finite_inputs(x, of_layer.what()); });
      throw;
    } catch (...) {
      discard_step();
      throw;
    }
    discard_step();
  }

  ///@{
  /// All parameters of this rank in one piece of memory, and their gradients in the same order, in
  /// the backend's memory. Call `gradients()` again after each backward: if the dtypes differ, an
  /// old span may hold the gradients of an earlier batch.
  std::span<parameter_dtype> values() { return run_.parameters.values(); }
  std::span<gradient_dtype> gradients() requires(Use::trains) {
    run_.parameters.collect(run_.backend);
    return run_.parameters.gradients();
  }
  ///@}

  /// Tells the model that parameters were changed, so that it updates rounded and packed copies.
  void values_changed() { ++run_.version; }

  /// Calls f(Parameter&) for every parameter in model order; see parameter.hpp.
  template <class F>
  void visit_parameters(F&& f) {
    for (const detail::ListedParameter& one : parameters_) show(one, f, ParameterTypes{});
  }

  /// Calls f(NamedBuffer&), in model order, for every tensor besides parameters that layers keep
  /// from step to step. They have no gradients; evaluation reads them, and checkpoints contain
  /// them.
  template <class F>
  void visit_buffers(F&& f) {
    bound_.visit_buffers("", [&](auto buffer) { f(buffer); });
  }

  /// The whole parameter `name`, on every rank. A collective: every rank calls it.
  /// sends    an all-gather of the parameter, if it is split
  /// throws   argument_error for an unknown name, with the known ones
  Tensor<parameter_dtype, Invariant> gather(const std::string& name) {
    return gather_part<parameter_dtype>(name, [](auto& parameter) { return parameter.value; });
  }

  /// The whole gradient of parameter `name`, on every rank, after it is settled. A collective.
  /// sends, throws    as `gather`
  Tensor<gradient_dtype, Invariant> gather_gradient(const std::string& name) requires(Use::trains) {
    return gather_part<gradient_dtype>(name, [](auto& parameter) { return parameter.gradient; });
  }

  /// Sets parameter `name` from a whole tensor; every rank takes its part.
  /// sends    nothing
  /// throws   argument_error for an unknown name, shape_error for another shape
  void set(const std::string& name, View<const parameter_dtype, Invariant> whole) {
    show_named(name, [&](auto& parameter) {
      const Value<parameter_dtype, Invariant> there = to_device(whole);
      redistribute(run_.backend, run_.ranks, run_.pool, there.view(), parameter.value);
    });
    values_changed();
  }

  /// A tensor of the host in the backend's memory, valid while the result lives; the model must
  /// outlive the result. On the host it is the tensor itself, on a device a copy in the model's
  /// memory.
  template <class T, Layout L>
  Value<T, L> to_device(View<const T, L> view) {
    if constexpr (DeviceBackend<backend_type>) {
      Value<T, L> there(run_.pool, view.global(), view.place());
      detail::to_device(run_.backend, view.data(), view.size(), there.writable().data());
      return there;
    } else {
      return Value<T, L>(view);
    }
  }

  /// A copy on the host of a tensor in the backend's memory.
  template <class T, Layout L>
  Tensor<T, L> to_host(View<const T, L> view) {
    Tensor<T, L> here(view.global(), view.place());
    detail::to_host(run_.backend, view.data(), here.size(), here.data());
    return here;
  }

  /// The collectives of a step for inputs of shape `in`.
  Plan plan(const input_shapes& in) const {
    if constexpr (is_on_mesh) {
      return plan_of<E, Use>(architecture_, run_.all_ranks.sizes(), in, sending());
    } else {
      return plan_of<E, Use>(architecture_, run_.ranks.size(), in, sending());
    }
  }

  /// The dtypes and the bucket size of the model's messages.
  Sending sending() const {
    return {dtype_v<dtype>, dtype_v<typename precision::reduce>, run_.bucket_bytes};
  }

  ///@{
  /// The objects of the model's run: layers, all its ranks, backend and state.
  const Architecture& layers() const { return architecture_; }
  communicator& ranks() { return run_.all_ranks; }
  backend_type& backend() { return run_.backend; }
  observer_type& observer() { return run_.observer; }
  Run<Ctx>& run() { return run_; }
  ///@}

  ///@{
  /// Number of the training step, from 1 on. To set it restores the random numbers of that step.
  std::uint64_t step() const { return run_.step; }
  void set_step(std::uint64_t step) { run_.begin_step(step); }
  ///@}

 private:
  static constexpr bool checks = detail::checks_locally<communicator>();

  using BoundArchitecture = Bound<Architecture, Setting<Ctx, Use>, E>;
  using ParameterTypes = typename BoundArchitecture::parameter_types;
  static constexpr bool is_on_mesh = MeshCommunicator<communicator>;
  using Gives = output_layout_at_t<Architecture, E>;
  using InFlight = detail::FlightWithOutput<values_t<dtype, typename E::wanted>>;

  Model(const Architecture& given, communicator& ranks, Seed seed, const input_shapes& in,
        std::unique_ptr<backend_type> own)
      : Model(given, ranks, seed, in, std::move(own), *own) {}

  Model(const Architecture& given, communicator& ranks, Seed seed, const input_shapes& in,
        std::unique_ptr<backend_type>&& own, backend_type& backend)
      : own_backend_(std::move(own)),
        run_{detail::ranks_of_layers(ranks), ranks, backend},
        architecture_(given),
        bound_(bind(in)) {
    run_.seed = seed;
    run_.parameters.allocate(run_.backend, run_.pool, Use::trains);
    visit_parameters([this](auto& p) {
      initialize(run_.backend, p.value, p.spec.begins(p.spec.fans), p.initial_stream);
    });
  }

  BoundArchitecture bind(const input_shapes& in) {
    run_.flight = &flights_.emplace_back();
    if constexpr (is_on_mesh) {
      detail::require_mesh_of_models(name_of<Architecture>, run_.all_ranks.sizes());
      run_.parameters.make_dense();
    }
    Binder<Ctx> binder{run_, parameters_, run_.flight->parts};
    const input_shapes known = detail::known_input(architecture_, in);
    return at_model([&] { return BoundArchitecture(architecture_, known, binder); });
  }

  output_view forward_for(Pass pass, input_view x) {
    const auto here = detail::in_phase<Phase::forward>(run_);
    run_.pass = pass;
    const output_view y = run_forward(x);
    next_ = {run_.first_sample + detail::samples_of(x), static_cast<std::uint16_t>(run_.batch + 1)};
    run_.flight->behind = next_;
    run_.flight->may_go_backward = true;
    return y;
  }

  InFlight& at(Flight flight) {
    if (flight.number >= flights_.size())
      detail::refuse_flight(name_of<Architecture>, flight.number, flights_.size());
    return flights_[flight.number];
  }

  /// Makes a batch the one that runs.
  void run_batch(InFlight& batch) {
    run_.flight = &batch;
    run_.set_place(batch.place);
  }

  /// Makes a new batch the one that runs, in place of the one before in this flight.
  void begin_forward(Flight flight, const input_view& x, std::span<const Segment> segments) {
    InFlight& batch = at(flight);
    if (batch.may_go_backward && batch.behind == next_) next_ = batch.place;
    batch.may_go_backward = false;
    batch.place = next_;
    run_batch(batch);
    if constexpr (is_on_mesh) begin_slice(batch, x, segments.size());
    at_model([&] {
      batch.sequences.set(run_.backend, run_.pool, segments, detail::global_shapes(x)[0]);
    });
  }

  output_view run_forward(input_view x) {
    auto& output = static_cast<InFlight*>(run_.flight)->output;
    output = {};
    if constexpr (checks) check_given(x, "input");
    run_.parameters.update_copies(run_.backend, run_.version);
    output = at_model([&] {
      return detail::converted_all<typename E::wanted>(
          run_, bound_.forward(run_, detail::values_of(detail::slice_of(x))));
    });
    return at_end<output_layout>(output);
  }

  /// The rank's slice of a batch that begins.
  /// throws   argument_error for segments, shape_error for an input without samples
  void begin_slice(InFlight& batch, const input_view& x, std::size_t segments) {
    detail::require_no_segments(name_of<Architecture>, segments, run_.all_ranks.sizes());
    batch.slice = at_model([&] {
      return detail::slice_of_batch(detail::global_shapes(x)[0], run_.all_ranks.place());
    });
  }

  /// Views at an end of the model of what layers gave for the batch that runs.
  template <EndLayout L, class Values>
  auto at_end(const Values& values) const {
    if constexpr (is_on_mesh) {
      return detail::whole_of<L>(detail::views_of(values), run_.flight->slice.whole,
                                 run_.all_ranks.place());
    } else {
      return detail::views_of(values);
    }
  }

  /// A view of another rank's part would be read past its end.
  template <class Views>
  void check_given(const Views& views, std::string_view what) const {
    std::size_t i = 0;
    detail::with_tensors(views, [&](const auto&... view) {
      (check_one(view, {name_of<Architecture>, what, i++, sizeof...(view)}), ...);
    });
  }
  template <class V>
  void check_one(const V& view, const detail::ToCheck& of) const {
    detail::require_own_part(of, view.place(), run_.place_at_ends());
    detail::require_reach(run_.backend, view, of.model, of.what);
  }

  void require_finite_inputs(const input_view& x, std::string_view of_layer) {
    std::size_t i = 0;
    detail::with_tensors(x, [&](const auto&... input) {
      (detail::require_finite_input(
           run_.backend, run_.pool, run_.all_ranks, input,
           detail::ToCheck{name_of<Architecture>, {}, i++, sizeof...(input)}.suffix(), of_layer),
       ...);
    });
  }

  void check_output_gradient(const InFlight& batch, Flight flight,
                             const output_gradient_view& dy) const {
    detail::require_may_go_backward(name_of<Architecture>, batch.may_go_backward, flight.number,
                                    run_.gradients);
    constexpr std::string_view what = "gradient of the output";
    check_given(dy, what);
    const auto given = detail::global_shapes(dy);
    auto expected = detail::global_shapes(batch.output);
    if constexpr (is_on_mesh) {
      for (Shape& one : expected) one = detail::with_samples(one, batch.slice.whole);
    }
    for (std::size_t i = 0; i < given.size(); ++i) {
      const detail::ToCheck of{name_of<Architecture>, what, i, given.size()};
      detail::require_gradient_of_output(of, given[i], expected[i]);
    }
  }

  template <class Call>
  static auto at_model(Call&& call) -> decltype(call()) {
    try {
      return call();
    } catch (error& e) {
      detail::add_model(e, name_of<Architecture>, detail::IsComposition<Architecture>);
      throw;
    }
  }

  /// Calls f with the listed parameter in its type, one of Ps.
  template <class F, class... Ps>
  void show([[maybe_unused]] const detail::ListedParameter& listed, [[maybe_unused]] F& f,
            detail::TypeSet<Ps...>) {
    run_.parameters.collect(run_.backend);
    (show_as<Ps>(listed, f), ...);
  }
  template <class P, class F>
  void show_as(const detail::ListedParameter& listed, F& f) {
    if (listed.type != &detail::identity_of<P>) return;
    P parameter = detail::shown<P>(run_, listed);
    f(parameter);
  }

  template <class F>
  void show_named(const std::string& name, F&& f) {
    show(detail::named(parameters_, name, name_of<Architecture>), f, ParameterTypes{});
  }

  template <class T, class Part>
  Tensor<T, Invariant> gather_part(const std::string& name, Part part) {
    Tensor<T, Invariant> whole{Shape{}};
    show_named(name, [&](auto& parameter) {
      whole = Tensor<T, Invariant>(parameter.spec.shape, run_.place());
      const auto mine = part(parameter);
      using Part_ = decltype(mine);
      const View<const T, typename Part_::layout> block(mine);
      if constexpr (DeviceBackend<backend_type>) {
        Value<T, Invariant> there(run_.pool, parameter.spec.shape, run_.place());
        redistribute(run_.backend, run_.ranks, run_.pool, block, there.writable());
        detail::to_host(run_.backend, there.view().data(), whole.size(), whole.data());
      } else {
        redistribute(run_.backend, run_.ranks, run_.pool, block, whole.view());
      }
    });
    return whole;
  }

  std::unique_ptr<backend_type> own_backend_;  // null if the caller's is used
  Run<Ctx> run_;
  Architecture architecture_;
  std::vector<detail::ListedParameter> parameters_;  // in model order
  std::deque<InFlight> flights_;
  BoundArchitecture bound_;
  input_gradients_t<dtype, E, Use> input_gradient_;
  detail::BatchPlace next_;  // of the batch that begins next
};

}  // namespace shardwise

#pragma once
// What models of one Context have in common, whatever their architecture: memory, parameters, steps
// and the batches that are under way.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/detail/agreed.hpp"
#include "shardwise/comm/gathered.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/location.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/backend_of_model.hpp"
#include "shardwise/model/flight.hpp"
#include "shardwise/model/load_state.hpp"
#include "shardwise/model/mesh_traffic.hpp"
#include "shardwise/model/model_checks.hpp"
#include "shardwise/model/model_options.hpp"
#include "shardwise/model/parameter_list.hpp"
#include "shardwise/model/rows_of_ends.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/sending.hpp"
#include "shardwise/model/shared_weights.hpp"
#include "shardwise/model/values.hpp"

namespace shardwise {

namespace detail {

/// The type of a model, for errors.
struct ModelName {
  std::string (*text)();
  bool is_composition;  ///< which has locations inside
};

}  // namespace detail

/// The part of a Model that does not depend on its architecture, so that the compiler makes it once
/// for all models of a Context.
template <class Ctx>
class ModelBase {
  static_assert(detail::must_be_context<Ctx>());

 public:
  ///@{
  /// The types of the Context.
  using context = Ctx;
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

  ModelBase(const ModelBase&) = delete;
  ModelBase& operator=(const ModelBase&) = delete;

  /// Makes room for `count` batches that went forward and not yet backward, the flights 0 to
  /// `count` - 1; never fewer than before. A model begins with one flight, which `forward(x)`,
  /// `evaluate` and `backward(dy)` use. Each takes memory for what one forward saves.
  void reserve_flights(std::size_t count) {
    while (flights_.size() < count) flights_.add().parts = flights_[0].parts.another();
  }
  /// The number of flights.
  std::size_t flights() const { return flights_.size(); }
  /// Whether a batch of another flight than flight 0 went forward and may still go backward.
  bool has_other_batches_under_way() const { return flights_.other_may_go_backward(); }

  /// Ends a step: gradients start anew, and random numbers are those of the next step. A program
  /// without `Step` calls this after it has changed `values()`.
  void next_step() {
    const auto call = in_call();
    require_own_weights();
    discard_step();
    run_.step.begin(run_.backend, run_.step.number + 1);
    ++run_.version;
  }

  /// Discards what forward saved and all gradients. Parameters and the step number stay, so the
  /// step can run again.
  [[gnu::noinline]] void discard_step() {
    const auto call = in_call();
    if (run_.traffic != nullptr) run_.traffic->discard_step();
    flights_.forget();
    next_ = {};
    run_.step.forget_batches();
    run_.pass.purpose = detail::Purpose::train;
  }

  /// Discards what the forward of the batch in this flight saved: it goes back no more, and the
  /// batches behind it keep their numbers in the step.
  /// throws   argument_error for a flight that is not reserved
  void discard_batch(Flight flight) {
    const auto call = in_call();
    at(flight).forget();
  }

  /// All parameters that this rank stores, in one piece of the backend's memory: with
  /// Keep::all_over_data its share of them.
  std::span<parameter_dtype> values() {
    require_loaded();
    return run_.parameters.values();
  }

  /// Tells the model that parameters were changed, so that it updates rounded and packed copies.
  /// throws   argument_error for a model that shares its weights with readers
  void values_changed() {
    require_loaded();
    require_own_weights();
    ++run_.version;
  }

  /// A tensor of the host in the backend's memory, valid while the result lives; the model must
  /// outlive the result. On the host it is the tensor itself, on a device a copy in the model's
  /// memory.
  template <class T, Layout L>
  Value<std::remove_const_t<T>, L> to_device(View<T, L> view) {
    using Numbers = Value<std::remove_const_t<T>, L>;
    if constexpr (DeviceBackend<backend_type>) {
      const auto call = in_call();
      Numbers there(run_.pool, view.global(), view.place());
      detail::to_device(run_.backend, view.data(), view.size(), there.writable().data());
      return there;
    } else {
      return Numbers(view);
    }
  }

  /// A copy on the host of a tensor in the backend's memory.
  template <class T, Layout L>
  Tensor<T, L> to_host(View<const T, L> view) {
    Tensor<T, L> here(view.global(), view.place());
    detail::to_host(run_.backend, view.data(), here.size(), here.data());
    return here;
  }

  /// What each rank keeps of the parameters.
  Keep keep() const { return run_.options.keep; }
  /// Which stage of a pipeline it is, if it is one.
  const detail::StageOfPipeline<communicator>& stage() const { return run_.stage; }

  /// The dtypes and the bucket size of the model's messages.
  const Sending& sending() const { return run_.sending; }

  ///@{
  /// The objects of the model's run: all its ranks, backend and state.
  communicator& ranks() { return run_.all_ranks; }
  backend_type& backend() { return run_.backend; }
  observer_type& observer() { return run_.observer; }
  Run<Ctx>& run() { return run_; }
  ///@}

  ///@{
  /// Number of the training step, from 1 on. To set it restores the random numbers of that step.
  std::uint64_t step() const { return run_.step.number; }
  void set_step(std::uint64_t step) {
    const auto call = in_call();
    run_.step.begin(run_.backend, step);
  }
  ///@}

 protected:
  /// Whether its ranks are those of a mesh.
  static constexpr bool is_on_mesh = detail::MeshCommunicator<communicator>;
  /// Its own backend, or the caller's.
  using Backend = detail::BackendOfModel<backend_type>;

  /// For a model with so many outputs. The flights have no parts yet.
  ModelBase(communicator& ranks, Seed seed, const ModelOptions& options, Backend&& backend,
            const detail::ModelName& name, std::size_t outputs)
      : backend_(std::move(backend)),
        run_{detail::ranks_of_layers(ranks), ranks, backend_.used},
        parameters_(run_, name.text),
        name_(name),
        outputs_(outputs) {
    run_.seed = seed;
    run_.options = options;
    run_.sending.bucket_bytes = options.bucket_bytes;
    run_.sending.sums_in_shares = options.sums_in_shares;
    run_.compared_steps.set_every(options.compare_given_every);
    run_.pass.flight = &flights_.add();
    for (std::size_t i = 0; i < outputs; ++i) run_.pass.flight->parts.add();
    if constexpr (is_on_mesh) {
      detail::require_mesh_of_models(name_.text, run_.all_ranks.sizes());
      run_.parameters.make_dense();
      run_.parameters.store_shares(options.keep, ranks.place()[MeshAxis::data]);
    }
  }

  [[gnu::noinline]] ~ModelBase() = default;

  /// While the result lives, this thread is in the model.
  detail::Location in_model() const { return detail::Location(name_.text, name_.is_composition); }

  /// While the result lives, this thread is in a call of the model.
  /// throws   argument_error if another one is, and for a model without numbers that may be used
  detail::CallOfLoaded in_call() {
    const auto here = in_model();
    return detail::CallOfLoaded(run_.one_thread, load_state_);
  }

  /// throws   argument_error for a model without numbers that may be used
  void require_loaded() const {
    const auto here = in_model();
    load_state_.require_loaded();
  }

  /// throws   argument_error if the model shares its weights
  void require_own_weights() const {
    const auto here = in_model();
    weights_.require_own();
  }

  /// Reads the parameters of `of` in place of its own; both have the same order.
  /// throws   argument_error while a step of `of` is under way, which would change them
  void share_parameters(ModelBase& of) {
    if (of.run_.step.gradients != GradientState::none || of.run_.step.under_way != nullptr)
      throw argument_error(
          "a reader of a model whose step is under way, which changes the weights: end the step "
          "before, by finish() or discard() of its Step, or by next_step() or discard_step() of "
          "the model");
    of.run_.parameters.update_copies(of.run_.backend, of.run_.version);
    run_.version = of.run_.version;
    run_.parameters.share(of.run_.parameters, run_.version);
    weights_.read(of.weights_);
  }

  /// Allocates the parameters that layers have reserved, and sets their initial values, if any.
  void begin_parameters(bool trains) {
    if (run_.options.to_be_loaded && trains) detail::refuse_to_be_loaded(name_.text);
    run_.parameters.allocate(run_.backend, run_.pool, trains);
    if (run_.options.to_be_loaded) {
      load_state_.await();
    } else {
      parameters_.begin();
    }
  }

  /// Begins what goes on beside the layers, after begin_parameters.
  /// sends    with Keep::all_over_data an all-gather of a number
  /// throws   as require_options; collective_error if `layers_ahead` differs between ranks
  void begin_traffic(bool trains) {
    const ModelOptions& options = run_.options;
    detail::require_options(options, is_on_mesh, trains);
    if constexpr (is_on_mesh)
      if (cuts_parameters(options.keep))
        detail::require_agreed(gathered(run_.all_ranks, options.layers_ahead),
                               "how many layers the model gathers ahead");
    if constexpr (has_traffic) {
      if (options.sums_meanwhile || options.layers_ahead > 0)
        run_.traffic = &traffic_.emplace(run_);
      run_.sending.sums_in_backward = options.sums_meanwhile;
    }
  }

  /// The state of this flight.
  /// throws   argument_error for a flight that is not reserved
  detail::FlightState& at(Flight flight) {
    if (flight.number >= flights_.size())
      detail::refuse_flight(name_.text, flight.number, flights_.size());
    return flights_[flight.number];
  }

  /// Makes a batch the one that runs.
  void run_batch(detail::FlightState& batch) {
    run_.pass.flight = &batch;
    run_.step.batch = batch.place;
    run_.pass.left_until_sum.forget();  // of a backward that failed
  }

  /// Makes a new batch the one that runs, in place of the one before in this flight. `first` is the
  /// shape of its first input.
  void begin_batch(Flight flight, const Shape& first, const detail::SegmentsOf& segments) {
    detail::FlightState& batch = at(flight);
    if (batch.awaits_parameters) detail::refuse_forward(name_.text, flight.number);
    if (batch.may_go_backward && batch.behind == next_) next_ = batch.place;
    batch.may_go_backward = false;
    batch.left.forget();
    batch.place = next_;
    run_batch(batch);
    const auto here = in_model();
    if constexpr (is_on_mesh) {
      batch.batch = detail::sliced_axes(first, run_.all_ranks.place());
      rows_.require_as_bound(batch.batch, first, run_.counts_tokens_as_bound,
                             run_.all_ranks.sizes());
    }
    batch.sequences.set(run_.backend, run_.pool, segments);
  }

  /// Prepares the pass of a batch that goes forward with these inputs.
  template <class Views>
  void begin_forward(detail::Purpose purpose, const Views& inputs) {
    run_.pass.purpose = purpose;
    run_.pass.flight->parts.forget(0, outputs_);
    if constexpr (checks) check_given(inputs, "input");
    if constexpr (is_on_mesh)
      if (run_.all_ranks.sizes().context > 1)
        for (const Shape& one : detail::global_shapes(inputs))
          detail::require_cut_of_batch(name_.text, one, run_.pass.flight->batch);
    run_.parameters.update_copies(run_.backend, run_.version);
  }

  /// A backward may follow for this batch of so many samples.
  void end_forward(std::size_t samples) {
    next_ = {run_.step.batch.first_sample + samples,
             static_cast<std::uint16_t>(run_.step.batch.number + 1)};
    run_.pass.flight->behind = next_;
    run_.pass.flight->may_go_backward = true;
  }

  /// Keeps the outputs of the batch that runs, and returns the views of them in the layout L.
  template <EndLayout L, class Values>
  auto keep_outputs(const Values& outputs) {
    std::size_t i = 0;
    detail::with_tensors(
        outputs, [&](const auto&... one) { (run_.pass.flight->parts[i++].save(one), ...); });
    return at_end<L>(outputs, rows_.cut_output());
  }

  /// Makes the batch in this flight the one that runs, to go backward from these gradients.
  template <class Views>
  void take_up_batch(Flight flight, const Views& output_gradients) {
    detail::FlightState& batch = at(flight);
    if constexpr (checks) check_output_gradients(batch, flight, output_gradients);
    run_batch(batch);
    batch.may_go_backward = false;
    batch.awaits_parameters = run_.pass.leaves_parameters;
  }

  /// Makes the batch in this flight the one that runs, for the gradients of parameters that its
  /// backward has left.
  void take_up_parameters(Flight flight) {
    detail::FlightState& batch = at(flight);
    detail::require_may_end_backward(name_.text, batch.awaits_parameters, flight.number,
                                     run_.step.gradients);
    run_batch(batch);
    batch.awaits_parameters = false;
  }

  /// Prepares the gradients for those of the batch that runs, or for some of them.
  void begin_gradients(bool is_part) {
    run_.pass.purpose = detail::Purpose::train;
    if (run_.step.gradients == GradientState::none) run_.layer_losses = 0;
    if (is_part) {
      run_.parameters.begin_part(run_.backend, run_.step.write());
      run_.step.gradients = GradientState::summands;
    } else {
      run_.parameters.begin_batch(run_.backend, run_.step.write());
    }
  }

  /// The gradients contain those of the batch that ran, or some of them.
  void end_gradients() {
    const detail::FlightState& batch = *run_.pass.flight;
    run_.pass.flight->parts.forget(0, outputs_);
    run_.parameters.end_batch(run_.backend, run_.step.write());
    run_.step.gradients = GradientState::summands;
    if (!batch.awaits_parameters)
      run_.step.samples_backward += batch.behind.first_sample - batch.place.first_sample;
    run_.step.batch = next_;
  }

  /// Views at an end of the model of what layers gave for the batch that runs. The model is bound
  /// to tensors like `bound` there, of which ranks have different rows or tokens, if it is known.
  template <EndLayout L, class Values>
  auto at_end(const Values& values, [[maybe_unused]] const Shape& bound = {}) const {
    if constexpr (is_on_mesh) {
      return detail::whole_of<L>(detail::views_of(values), detail::sliced_axes(run_, bound),
                                 run_.all_ranks.place());
    } else {
      return detail::views_of(values);
    }
  }

  /// Looks for a NaN or an infinity in the inputs; `of_layer` is the error of the first layer that
  /// gives one.
  /// throws   numeric_error for the first one, and in it the message of `of_layer`
  template <class Views>
  [[gnu::cold]] void require_finite_inputs(const Views& inputs, const error& of_layer) {
    std::size_t i = 0;
    const auto here = in_model();
    detail::with_tensors(inputs, [&](const auto&... input) {
      (detail::require_finite_input(run_.backend, run_.pool, run_.all_ranks, input,
                                    detail::ToCheck{name_.text, {}, i++, sizeof...(input)}.suffix(),
                                    of_layer.what()),
       ...);
    });
  }

 private:
  static constexpr bool checks = detail::checks_locally<communicator>();

  /// A view of another rank's part would be read past its end.
  template <class Views>
  void check_given(const Views& views, std::string_view what) const {
    std::size_t i = 0;
    detail::with_tensors(views, [&](const auto&... view) {
      (check_one(view, {name_.text, what, i++, sizeof...(view)}), ...);
    });
  }
  template <class V>
  void check_one(const V& view, const detail::ToCheck& of) const {
    detail::require_own_part(of, view.place(), run_.place_at_ends());
    if (detail::is_nowhere(view))
      detail::refuse_nowhere(detail::sentence({of.model(), ": the ", of.what, of.suffix()}));
    detail::require_reach(run_.backend, view, of.model, of.what);
  }

  template <class Views>
  void check_output_gradients(detail::FlightState& batch, Flight flight, const Views& views) const {
    detail::require_may_go_backward(name_.text, batch.may_go_backward, flight.number,
                                    run_.step.gradients);
    constexpr std::string_view what = "gradient of the output";
    check_given(views, what);
    const auto given = detail::global_shapes(views);
    for (std::size_t i = 0; i < given.size(); ++i) {
      Shape expected = batch.parts[i].in;
      if constexpr (is_on_mesh)
        expected =
            detail::over_all_slices(expected, detail::sliced_axes(run_, batch, rows_.cut_output()));
      detail::require_gradient_of_output({name_.text, what, i, given.size()}, given[i], expected);
    }
  }

  Backend backend_;

 protected:
  Run<Ctx> run_;                           ///< of the model
  detail::ParameterList<Ctx> parameters_;  ///< of the model
  detail::RowsOfEnds rows_{};              ///< of its inputs and outputs

 private:
  friend detail::LoadState& detail::load_state_of<Ctx>(ModelBase&) noexcept;

  detail::ModelName name_;
  std::size_t outputs_;
  detail::Flights flights_{};  // the first parts of each are the model's outputs
  detail::BatchPlace next_{};  // of the batch that begins next
  detail::SharedWeights weights_{};
  detail::LoadState load_state_{};
  static constexpr bool has_traffic = detail::can_have_traffic<communicator>();
  [[no_unique_address]] std::conditional_t<has_traffic, std::optional<detail::MeshTraffic<Ctx>>,
                                           Nothing>
      traffic_{};
};

namespace detail {

template <class Ctx>
LoadState& load_state_of(ModelBase<Ctx>& model) noexcept {
  return model.load_state_;
}

}  // namespace detail

}  // namespace shardwise

#pragma once
// What a layer uses while it runs: its parameters, state, random numbers and exchanges.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/device_random_stream.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layout/global_runs.hpp"
#include "shardwise/layout/rows_begin.hpp"
#include "shardwise/layout/token_rows.hpp"
#include "shardwise/model/exchanges.hpp"
#include "shardwise/model/key_value_cache.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/whole_parameters.hpp"

namespace shardwise {

namespace detail {

/// What a bound layer stores about its input and its parameters, for every type of layer.
template <std::size_t N>
struct BoundParameters {
  Shape in{};                          ///< global; some extents may be unknown
  std::array<ParameterSlot, N> slots;  ///< the place of each in memory
  std::array<ParameterSpec, N> specs;  ///< its name and global shape
  TiedUse tied{};                      ///< the number of this use, if several layers share them
  LayoutValue over_context{};          ///< of what it takes, if the layer says it
  RowsBegin rows{};                    ///< of the rank
  std::size_t number = 0;              ///< on a mesh, of the layer in `Run::of_layers`; of a
                                       ///< merge, of what it saves of its first operand
};

template <class Context, class Framed>
struct LayerCall;

/// The frame of one call of a layer; `ordinal` selects its random numbers.
template <class F, class Context>
F frame_of(Run<Context>& run, const typename F::Bound& bound, std::uint64_t ordinal,
           const typename F::Shapes& exchange_shapes = {}) {
  return F(run, bound, ordinal, exchange_shapes);
}

}  // namespace detail

/// A layer's part of the rank's run. `Setting` has what is known at compile time: `context`,
/// `trains` and `input_gradient`. Layers that differ only in sizes share one type of frame, so the
/// code that runs on it is compiled once.
template <Layout In, class Setting, class Parameters, class Exchanges>
class Frame : public detail::Exchanger<typename Setting::context, Exchanges> {
  using Ctx = typename Setting::context;
  using Base = detail::Exchanger<Ctx, Exchanges>;
  template <std::size_t Index>
  using Use = std::tuple_element_t<Index, Parameters>;
  static constexpr bool is_on_mesh = detail::MeshCommunicator<typename Ctx::communicator>;
  static constexpr bool may_gather = is_on_mesh && std::tuple_size_v<Parameters> > 0;

 public:
  using layout = In;                                               ///< of the input
  using dtype = typename Ctx::dtype;                               ///< of values
  using backend_type = typename Ctx::backend;                      ///< that computes the tensors
  static constexpr bool input_gradient = Setting::input_gradient;  ///< whether backward gives dx
  static constexpr std::size_t parameter_count = std::tuple_size_v<Parameters>;  ///< of the layer
  /// The views of its parameters.
  using Bound = detail::BoundParameters<parameter_count>;
  /// Whole parameters and gradients, if ranks store shares of them.
  using Whole = detail::WholeParameters<Ctx, may_gather>;

  /// The backend that computes.
  backend_type& backend() { return run_.backend; }
  /// The number of this rank, and the number of ranks.
  Place place() const { return run_.place(); }

  /// The shape of inputs that the layer was bound to.
  const Shape& bound_input() const { return bound_.in; }

  /// Uninitialised memory from the model's pool.
  Buffer take(std::size_t bytes) { return run_.pool.take(bytes); }

  /// The rank's part of parameter Index as the layer uses it; null if the rank's summand is zero.
  template <std::size_t Index>
  const dtype* parameter_data() const {
    using Taken = Redistribute<typename Use<Index>::stored, typename Use<Index>::used>;
    const bool is_zero = Taken::movement == Movement::keep_first && run_.place().rank != 0;
    if constexpr (may_gather) {
      if (run_.parameters.stores_share()) return is_zero ? nullptr : whole_->value(Index);
    }
    return is_zero ? nullptr : run_.parameters.used(bound_.slots[Index]);
  }

  /// The rank's parts of all parameters with their shapes: `const auto [weight, bias] =
  /// frame.parameters()`.
  auto parameters() const {
    return [this]<std::size_t... Is>(std::index_sequence<Is...>) {
      return std::tuple<View<const dtype, typename Use<Is>::used>...>(
          View<const dtype, typename Use<Is>::used>(parameter_data<Is>(), bound_.specs[Is].shape,
                                                    run_.place())...);
    }
    (std::make_index_sequence<parameter_count>{});
  }

  /// The shape of the rank's part of parameter Index.
  template <std::size_t Index>
  Shape parameter_shape() const {
    return local_shape<typename Use<Index>::stored>(bound_.specs[Index].shape, run_.place());
  }

  /// Memory for the gradient of parameter Index, in the layout of the parameter as used.
  template <std::size_t Index>
  dtype* gradient_data() const {
    if constexpr (may_gather) {
      if (run_.parameters.stores_share_of_gradients()) return whole_->gradient(Index);
    }
    return run_.parameters.written(bound_.slots[Index]);
  }

  /// Memory for the gradients of all parameters, with their shapes.
  auto gradients() const {
    return [this]<std::size_t... Is>(std::index_sequence<Is...>) {
      return std::tuple<View<dtype, dual_t<typename Use<Is>::used>>...>(
          View<dtype, dual_t<typename Use<Is>::used>>(gradient_data<Is>(), bound_.specs[Is].shape,
                                                      run_.place())...);
    }
    (std::make_index_sequence<parameter_count>{});
  }

  /// Whether gradients replace the old values or are added to them.
  Write write() const {
    if constexpr (may_gather) {
      if (run_.parameters.stores_share_of_gradients()) return Write::replace;
    }
    return run_.tied.adds(bound_.tied) ? Write::add
                                       : run_.parameters.written_how(run_.step.write());
  }

  /// The weight that begins at `data`, as kernels take it: its version changes whenever parameters
  /// change, and it stays where no backward may follow, unless it is gathered for this call.
  Weight<dtype> weight(const dtype* data) const {
    return {data, run_.version, !training() && !are_gathered()};
  }

  /// Whether a backward may follow; layers that draw masks or compute statistics need this.
  bool training() const { return run_.pass.trains(); }

  /// Whether this forward is the first one of its batch in training.
  bool sees_new_batch() const { return run_.pass.sees_new_batch(); }

  /// The layer's random numbers of this step, indexed by the elements that `global_runs` of a held
  /// part numbers. A DeviceRandomStream on a device, for loops; else a RandomStream.
  auto random() const {
    const RandomStream stream(run_.seed, ordinal_, run_.step.number);
    if constexpr (DeviceBackend<backend_type>) {
      return detail::DeviceRandomStream(stream, run_.step.number_there.here());
    } else {
      return stream;
    }
  }

  /// The factor between the gradient of a mean over the samples that the layer is given and its
  /// summand in the gradients of the step: the loss scale, times the share of these samples in the
  /// step's. Without a `Step` it is 1, or on a mesh the share of the rank's slice in the batch. A
  /// layer that adds a loss of its own multiplies its gradient by it.
  double loss_factor() const { return batch_loss_factor() * share_of_batch(); }

  /// The same for a mean over the samples of the whole batch.
  double batch_loss_factor() const { return run_.step.loss_factor(); }

  /// Adds the loss of its own that a layer has for this batch, in backward, to what
  /// `Model::layer_losses` tells: a mean over the samples that it is given. The same number on
  /// every rank that is given them.
  void add_loss(double loss) const { run_.add_layer_loss(loss, share_of_batch()); }

  /// The part that the rank has of a tensor of the whole batch, over all ranks of the model: its
  /// shapes `whole` and `local`, where it begins, axis by axis, and how many samples of the step
  /// are before this batch. `token_rows` and `global_runs` of it number its tokens and its
  /// elements. On a mesh the tensor of a view, which the ranks along `tensor` have, is a part of
  /// that one, in the batch and along `context` in the sequence or in the height. The view has the
  /// rows or tokens of the layer's input, or lies over `context` as OverContext says, see `Merge`.
  template <class OverContext = void, class V>
  detail::HeldPart held_part(const V& view) const {
    if constexpr (is_on_mesh) {
      const Shape axes = detail::sliced_axes(run_, bound_.in);
      const Shape whole = detail::over_all_slices(view.global(), axes);
      detail::MeshLayoutValue over_mesh =
          detail::samples_over_mesh(detail::axis_over_context(axes));
      if (bound_.over_context.cuts()) over_mesh[MeshAxis::context] = bound_.over_context;
      if constexpr (!std::is_void_v<OverContext>)
        over_mesh[MeshAxis::context] = detail::layout_value<OverContext>;
      over_mesh[MeshAxis::tensor] = detail::layout_value<typename V::layout>;
      return of_batch(
          detail::held_part(detail::on_axes_of(over_mesh, whole), whole, run_.all_ranks.place()));
    } else {
      return of_batch(detail::held_part(view));
    }
  }

  /// Where the rank's rows begin in whole images; 0 without a mesh.
  const RowsBegin& rows_begin() const { return bound_.rows; }

  /// The sequences of the whole batch, for a tensor [batch, sequence, ...] or [sequence, ...] of
  /// this global shape: the positions of its tokens, and which tokens belong together. Rows are
  /// numbered as `token_rows(held_part(view))` numbers them.
  /// throws   shape_error for other axes, or for another number of rows than the batch has
  Sequences sequences(const Shape& global) const {
    return run_.pass.flight->sequences.of(detail::over_all_slices(run_, global, bound_.in));
  }

  /// The cache whose sequences the tokens of this evaluation continue; null without one.
  const KeyValueCache* cache() const { return run_.pass.cache; }
  /// For a merge: memory for rows of `elements` elements of its operand `operand`, [sequences,
  /// tokens, elements] of that cache, which holds what the merge wrote there in earlier calls.
  dtype* cached_rows(std::size_t operand, std::size_t elements) {
    return static_cast<dtype*>(
        run_.pass.cache->rows(run_.pool, bound_.number + operand, elements * sizeof(dtype)));
  }

 private:
  template <class, class>
  friend struct detail::LayerCall;
  template <class F, class Context>
  friend F detail::frame_of(Run<Context>&, const typename F::Bound&, std::uint64_t,
                            const typename F::Shapes&);

  Frame(Run<Ctx>& run, const Bound& bound, std::uint64_t ordinal,
        const typename Base::Shapes& exchange_shapes)
      : Base(run, exchange_shapes, &bound.in), run_(run), bound_(bound), ordinal_(ordinal) {}

  ///@{
  /// Where its parameters are whole; how their gradients are added to what the rank stores; and
  /// whether no other layer adds to these gradients in this backward after this one.
  void read_from(const Whole& whole) {
    if constexpr (may_gather) whole_ = &whole;
  }
  Write added_how() const { return run_.tied.adds(bound_.tied) ? Write::add : run_.step.write(); }
  bool is_last_to_add() const { return bound_.tied.number == 0; }
  ///@}

  detail::HeldPart of_batch(detail::HeldPart part) const {
    part.samples_before = run_.step.batch.first_sample;
    return part;
  }

  /// The part of the rank's slice in tensors such as the input, of the axes that are cut.
  detail::HeldPart slice() const requires is_on_mesh {
    return detail::slice_part(detail::sliced_axes(run_, bound_.in), run_.all_ranks.place());
  }

  double share_of_batch() const {
    if constexpr (is_on_mesh) return slice().share();
    return 1;
  }

  /// Whether the layer's parameters are gathered for each call.
  bool are_gathered() const {
    if constexpr (may_gather) {
      return run_.parameters.stores_share();
    } else {
      return false;
    }
  }

  [[no_unique_address]] std::conditional_t<may_gather, const Whole*, Nothing> whole_{};
  Run<Ctx>& run_;
  const Bound& bound_;
  std::uint64_t ordinal_;
};

namespace detail {

/// A frame of a layer that keeps state between calls (`layer.make_state(frame)`), or something of
/// each batch until its backward (`saved`); Nothing for the one that it does not have.
template <class F, class State, class Saved>
struct StatefulFrame : F {
  /// `state` is that of the layer, `saved` what it saves of this batch.
  StatefulFrame(const F& frame, State& state, Saved& saved)
      : F(frame), state_(state), saved_(saved) {}

  /// The layer's state.
  State& state() requires(!std::same_as<State, Nothing>) { return state_; }

  /// What the layer's forward leaves for the backward of the same batch.
  Saved& saved() requires(!std::same_as<Saved, Nothing>) { return saved_; }

 private:
  State& state_;
  Saved& saved_;
};

/// The arguments of one call of a layer. The observer sees the call while this lives.
template <class Context, class Framed>
struct LayerCall {
  template <class F, class... Arguments>
  LayerCall(Run<Context>& run, std::string (*name)(), const F& framed, Arguments&... of_frame)
      : here(run.observer, Work{Work::Kind::compute, name, 0, {}}),
        whole(run, framed.bound_.number, framed.is_last_to_add()),
        frame(framed, of_frame...) {
    frame.read_from(whole);
  }

  /// The layer has written the gradients of its parameters.
  void end_gradients() { whole.end_gradients(frame.added_how()); }

  [[no_unique_address]] Observation<typename Context::observer> here;
  [[no_unique_address]] typename Framed::Whole whole;
  Framed frame;
};

}  // namespace detail

}  // namespace shardwise

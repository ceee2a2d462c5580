#pragma once
// What a layer sees while it runs: its parameters, state, randomness and exchanges.

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "shardwise/backend/backend.hpp"
#include "shardwise/core/device_random_stream.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/philox.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/model/exchanges.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise {

/// What a bound layer keeps of its input and its parameters, whatever its type.
template <std::size_t N>
struct BoundParameters {
  Shape in{};                            ///< global, with extents that are not known yet
  std::array<ParameterSlot, N> slots{};  ///< where each lies in memory
  std::array<ParameterSpec, N> specs{};  ///< its name and global shape
  SharedUse shared{};                    ///< which use it is, if several layers use them
};

/// A layer's part of the rank's run. `Setting` holds what is known at compile time: `context`,
/// `trains` and `input_gradient`. Layers that differ in sizes alone have frames of one type, so
/// what runs on it is compiled once.
template <Layout In, class Setting, class Parameters, class Exchanges>
class Frame : public Exchanger<typename Setting::context, Exchanges> {
  using Ctx = typename Setting::context;
  using Base = Exchanger<Ctx, Exchanges>;
  template <std::size_t I>
  using Use = std::tuple_element_t<I, Parameters>;

 public:
  using layout = In;                                               ///< of the input
  using dtype = typename Ctx::dtype;                               ///< of values
  using backend_type = typename Ctx::backend;                      ///< who computes
  static constexpr bool input_gradient = Setting::input_gradient;  ///< whether backward gives dx
  static constexpr std::size_t parameter_count = std::tuple_size_v<Parameters>;  ///< of the layer
  /// What is kept of its parameters.
  using Bound = BoundParameters<parameter_count>;

  /// Made for one call: `ordinal` keys the layer's random numbers, of which one sample takes
  /// `sample_elements`.
  Frame(Run<Ctx>& run, const Bound& bound, std::uint64_t ordinal,
        const typename Base::Shapes& exchange_shapes, std::uint64_t sample_elements)
      : Base(run, exchange_shapes),
        run_(run),
        bound_(bound),
        ordinal_(ordinal),
        sample_elements_(sample_elements) {}

  /// Who computes.
  backend_type& backend() { return run_.backend; }
  /// Which rank this is.
  Place place() const { return run_.place(); }

  /// The shape of inputs that the layer was bound to.
  const Shape& bound_input() const { return bound_.in; }

  /// Memory of any content, from the model's pool.
  Buffer take(std::size_t bytes) { return run_.pool.take(bytes); }

  /// The rank's part of parameter I as the layer uses it; null where the rank's summand is zero.
  template <std::size_t I>
  const dtype* parameter_data() const {
    using Taken = Redistribute<typename Use<I>::stored, typename Use<I>::used>;
    const bool is_zero = Taken::movement == Movement::keep_first && run_.place().rank != 0;
    return is_zero ? nullptr : run_.parameters.used(bound_.slots[I]);
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

  /// The shape of the rank's part of parameter I.
  template <std::size_t I>
  Shape parameter_shape() const {
    return local_shape<typename Use<I>::stored>(bound_.specs[I].shape, run_.place());
  }

  /// Where the layer writes the gradient of parameter I; it is that of the parameter as used.
  template <std::size_t I>
  dtype* gradient_data() const {
    return run_.parameters.written(bound_.slots[I]);
  }

  /// Where the layer writes the gradients of all parameters, with their shapes.
  auto gradients() const {
    return [this]<std::size_t... Is>(std::index_sequence<Is...>) {
      return std::tuple<View<dtype, dual_t<typename Use<Is>::used>>...>(
          View<dtype, dual_t<typename Use<Is>::used>>(gradient_data<Is>(), bound_.specs[Is].shape,
                                                      run_.place())...);
    }
    (std::make_index_sequence<parameter_count>{});
  }

  /// Whether gradients replace what is there or are added to it.
  Write write() const {
    return run_.shared.adds(bound_.shared) ? Write::add : run_.parameters.written_how(run_.write());
  }

  /// Changes whenever parameters change.
  std::uint64_t version() const { return run_.version; }

  /// Whether a backward may follow; layers that draw masks or take statistics ask.
  bool training() const { return run_.trains(); }

  /// Whether this forward is of a batch that the layer has not seen yet, in training.
  bool sees_new_batch() const { return run_.trains() && !run_.finds_non_finite(); }

  /// The layer's random numbers of this step, indexed from `first_element()` on by global element.
  /// On a device a DeviceRandomStream, for loops, elsewhere a RandomStream.
  auto random() const {
    const RandomStream stream(run_.seed, ordinal_, run_.step);
    if constexpr (DeviceBackend<backend_type>) {
      return DeviceRandomStream(stream, run_.step_there.here());
    } else {
      return stream;
    }
  }

  /// Elements of this step that went through this layer before this batch.
  std::uint64_t first_element() const { return run_.first_sample * sample_elements_; }

 private:
  Run<Ctx>& run_;
  const Bound& bound_;
  std::uint64_t ordinal_;
  std::uint64_t sample_elements_;
};

/// A frame of a layer that keeps state between calls (`layer.make_state(frame)`).
template <class F, class State>
struct StatefulFrame : F {
  /// `state` is the layer's own.
  StatefulFrame(const F& frame, State& state) : F(frame), state_(state) {}

  /// What the layer keeps.
  State& state() { return state_; }

 private:
  State& state_;
};

}  // namespace shardwise

#pragma once
// The types that all layers of a model are compiled for.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shardwise/comm/communicator_checks.hpp"
#include "shardwise/model/observer.hpp"
#include "shardwise/model/precision.hpp"

namespace shardwise {

/// Dtype or Precision, backend and communicator of a model, and the observer of its run.
///     Context<float, Reference, ThreadCommunicator>
///     Context<float, Reference, ThreadCommunicator, Tracer>
template <class P, class B, class C, class O = Unobserved>
struct Context {
  static_assert(detail::PrecisionChoice<P>,
                "P is no number type that layers compute in. Context<P, Backend, Communicator> "
                "takes float, double, bf16, fp16 or a Precision of those first.");
  static_assert(detail::must_be_communicator<C>());
  static_assert(Observer<O>,
                "O is no observer. Context<P, Backend, Communicator, O> takes Unobserved, Tracer "
                "or a type that can be made without arguments and has begin(const Work&) and a "
                "noexcept end().");

  /// The Precision P, or Precision<P> if P is a dtype.
  using precision = typename detail::precision_of<P>::type;
  using dtype = typename precision::compute;  ///< of the values between layers
  using backend = B;                          ///< that computes the tensors
  using communicator = C;                     ///< of the ranks
  using observer = O;                         ///< of the work of a rank
};

namespace detail {

/// Some of a model's inputs, each by its number.
struct InputSet {
  std::uint64_t bits = 0;  ///< bit I for input I

  /// Whether this input is one of them.
  constexpr bool has(std::size_t input) const { return ((bits >> input) & 1) != 0; }
  /// All inputs.
  static constexpr InputSet all() { return {~std::uint64_t{0}}; }
};

}  // namespace detail

/// The use of a model that is trained: parameters have gradients, the model's input has none.
struct Train {
  static constexpr bool trains = true;           ///< whether there are gradients
  static constexpr bool input_gradient = false;  ///< whether any of the model's inputs has one
  static constexpr detail::InputSet input_gradients{};  ///< which of its inputs have one
};
/// The use of a model that is trained and also gives the gradients of its inputs. This costs the
/// computation and communication of these gradients.
struct TrainWithInputGradient {
  static constexpr bool trains = true;                                          ///< see Train
  static constexpr bool input_gradient = true;                                  ///< see Train
  static constexpr detail::InputSet input_gradients = detail::InputSet::all();  ///< see Train
};
/// The same for some of a model's inputs, counted from 0: `TrainWithGradientOf<1>`.
template <std::size_t... Inputs>
struct TrainWithGradientOf {
  static constexpr bool trains = true;          ///< see Train
  static constexpr bool input_gradient = true;  ///< see Train
  static constexpr detail::InputSet input_gradients{
      ((std::uint64_t{1} << Inputs) | ...)};  ///< see Train
};
/// The use of a model that only goes forward: it has no gradients and saves nothing.
struct ForwardOnly {
  static constexpr bool trains = false;                 ///< see Train
  static constexpr bool input_gradient = false;         ///< see Train
  static constexpr detail::InputSet input_gradients{};  ///< see Train
};

namespace detail {

/// The use with these properties.
template <bool Trains, bool InputGradient>
using use_of = std::conditional_t<!Trains, ForwardOnly,
                                  std::conditional_t<InputGradient, TrainWithInputGradient, Train>>;

/// The use of a part that reads several values, of which those in Inputs have a gradient.
template <bool Trains, InputSet Inputs>
struct UseOfPart {
  static constexpr bool trains = Trains;
  static constexpr bool input_gradient = Trains && Inputs.bits != 0;
  static constexpr InputSet input_gradients = input_gradient ? Inputs : InputSet{};
};

template <class U>
inline constexpr bool asks_some_gradients = false;
template <std::size_t... Inputs>
inline constexpr bool asks_some_gradients<TrainWithGradientOf<Inputs...>> = true;

/// What a model is used for: `Train`, `TrainWithInputGradient`, `TrainWithGradientOf<Inputs...>` or
/// `ForwardOnly`.
template <class U>
concept ModelUse = std::same_as<U, Train> || std::same_as<U, TrainWithInputGradient> ||
    std::same_as<U, ForwardOnly> || detail::asks_some_gradients<U>;

}  // namespace detail

}  // namespace shardwise

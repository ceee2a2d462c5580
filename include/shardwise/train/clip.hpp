#pragma once
// The norm of all gradients together, and gradients that are cut down to it.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "shardwise/backend/tensor_memory.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/model/collectives.hpp"
#include "shardwise/model/precision.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise {

/// The root of the sum of squares, or the largest magnitude.
enum class Norm : std::uint8_t { euclidean, infinity };

namespace detail {

/// The square of a number.
template <Real T>
struct Square {
  const T* numbers;

  constexpr double operator()(std::size_t i) const {
    const double x = rounded<double>(numbers[i]);
    return x * x;
  }
};

/// The magnitude of a number.
template <Real T>
struct Magnitude {
  const T* numbers;

  constexpr double operator()(std::size_t i) const { return std::abs(rounded<double>(numbers[i])); }
};

/// to = factor from, rounded once; both may be the same memory.
template <Real To, Real From>
struct Scale {
  using A = accumulate_t<From>;

  const From* from;
  To* to;
  A factor;

  constexpr void operator()(std::size_t i) const {
    to[i] = static_cast<To>(static_cast<A>(from[i]) * factor);
  }
};

/// Multiplies all gradients of the rank by `factor`.
template <class M>
void scale_gradients(M& model, double factor) {
  using G = typename M::gradient_dtype;
  const auto gradients = model.gradients();
  model.backend().for_each(gradients.size(), Scale<G, G>{gradients.data(), gradients.data(),
                                                         static_cast<accumulate_t<G>>(factor)});
}

/// Throws argument_error unless there are gradients that are not under a loss scale.
template <class M>
void require_plain_gradients(const M& model, const char* who) {
  if (!model.has_gradients()) {
    throw argument_error({who, " needs the gradients of at least one batch of this step"});
  }
  if (model.gradient_scale() != 1) {
    throw argument_error({who, ": the gradients are those of the loss times ",
                          model.gradient_scale(),
                          ": let finish_step take that out again, with the loss scaler that the "
                          "batches had and the clip_norm that is wanted"});
  }
}

}  // namespace detail

/// The norm of all gradients of the step, over all ranks: a parameter that is split counts with
/// every rank's block, one that every rank has counts once. Settles gradients first, if that is
/// still to be done. A collective; the same bits on every rank.
/// sends    `plan().settle`, and an all-reduce of one double
/// throws   argument_error without a batch, or with gradients under a loss scale
template <class M>
double gradient_norm(M& model, Norm norm = Norm::euclidean) {
  detail::require_plain_gradients(model, "gradient_norm");
  model.settle_gradients();
  using G = typename M::gradient_dtype;
  auto& run = model.run();
  // What all ranks have alike lies in front of what is split, and counts on the first of them.
  const std::span<const G> counted =
      run.place().rank == 0 ? run.parameters.gradients() : run.parameters.split();
  const bool is_largest = norm == Norm::infinity;
  const double mine = is_largest
                          ? detail::reduced(run.backend, run.pool, counted.size(), 0.0,
                                            detail::Magnitude<G>{counted.data()}, detail::Largest{})
                          : detail::reduced(run.backend, run.pool, counted.size(), 0.0,
                                            detail::Square<G>{counted.data()}, detail::Plus{});
  const double all = detail::all_reduced(
      run, [] { return std::string("norm of the gradients"); }, mine,
      is_largest ? Reduction::max : Reduction::sum);
  return is_largest ? all : std::sqrt(all);
}

/// Multiplies all gradients by max_norm / (norm + 1e-6) if that is below 1, and returns the norm
/// that they had. A collective, as `gradient_norm`.
/// sends    what `gradient_norm` does
/// throws   argument_error for a max_norm that is not above 0; numeric_error, on every rank, if the
///          norm is no finite number: the gradients are then as they were, but settled
/// source   torch.nn.utils.clip_grad_norm_ with error_if_nonfinite
template <class M>
double clip_gradients(M& model, double max_norm, Norm norm = Norm::euclidean) {
  if (!(max_norm > 0 && std::isfinite(max_norm))) {
    throw argument_error(
        {"clip_gradients: the norm to cut down to is ", max_norm, "; it must be a number above 0"});
  }
  const double found = gradient_norm(model, norm);
  if (!std::isfinite(found)) {
    throw numeric_error(
        {"the norm of all gradients is ", found,
         ", though the loss is finite: a gradient overflowed on its way back. Try a "
         "smaller learning rate or, for fp16, a LossScaler"});
  }
  const double factor = max_norm / (found + 1e-6);
  if (factor < 1) detail::scale_gradients(model, factor);
  return found;
}

}  // namespace shardwise

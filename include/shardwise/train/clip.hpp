#pragma once
// The norm of all gradients together, and gradients that are cut down to it.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "shardwise/core/error.hpp"
#include "shardwise/model/collectives.hpp"
#include "shardwise/model/precision.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise {

/// The root of the sum of squares, or the largest magnitude.
enum class Norm : std::uint8_t { euclidean, infinity };

namespace detail {

/// Squares are added up in double, in eight lanes and these from the first to the last.
template <Real T>
double sum_of_squares(std::span<const T> numbers) {
  constexpr std::size_t lanes = 8;
  double sums[lanes] = {};
  const std::size_t whole = numbers.size() / lanes * lanes;
  for (std::size_t i = 0; i < whole; i += lanes) {
    for (std::size_t l = 0; l < lanes; ++l) {
      const double x = rounded<double>(numbers[i + l]);
      sums[l] += x * x;
    }
  }
  for (std::size_t i = whole; i < numbers.size(); ++i) {
    const double x = rounded<double>(numbers[i]);
    sums[i - whole] += x * x;
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

/// 0 of nothing, and NaN if one of them is.
template <Real T>
double largest_magnitude(std::span<const T> numbers) {
  double largest = 0;
  for (const T number : numbers) {
    const double x = std::abs(rounded<double>(number));
    if (x > largest || x != x) largest = x;
  }
  return largest;
}

template <class T>
std::span<const T> constant(std::span<T> numbers) {
  return numbers;
}

/// Multiplies all gradients of the rank by `factor`, and rounds them once. Returns whether all of
/// what comes out is finite.
template <class M>
bool scale_gradients(M& model, double factor) {
  using G = typename M::gradient_dtype;
  using A = accumulate_t<G>;
  const A by = static_cast<A>(factor);
  std::uint32_t bad = 0;  // a number instead of a bool, so that the loop runs in vectors
  for (G& gradient : model.gradients()) {
    gradient = static_cast<G>(static_cast<A>(gradient) * by);
    const bool is_finite = std::abs(static_cast<A>(gradient)) <= std::numeric_limits<A>::max();
    bad |= is_finite ? 0U : 1U;
  }
  return bad == 0;
}

/// Throws argument_error unless there are gradients that are not under a loss scale.
template <class M>
void require_plain_gradients(const M& model, const char* who) {
  if (!model.has_gradients()) {
    throw argument_error(std::string(who) +
                         " needs the gradients of at least one batch of this step");
  }
  if (model.gradient_scale() != 1) {
    throw argument_error(std::string(who) + ": the gradients are those of the loss times " +
                         std::to_string(model.gradient_scale()) +
                         ": let finish_step take that out again, with the loss scaler that the "
                         "batches had and the clip_norm that is wanted");
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
  const auto& memory = model.run().parameters;
  const auto alike = detail::constant(memory.alike());
  const auto split = detail::constant(memory.split());
  double mine = 0;
  if (norm == Norm::infinity) {
    mine = detail::largest_magnitude(alike);
    const double of_split = detail::largest_magnitude(split);
    if (of_split > mine || of_split != of_split) mine = of_split;
  } else {
    if (model.ranks().rank() == 0) mine = detail::sum_of_squares(alike);
    mine += detail::sum_of_squares(split);
  }
  double all = 0;
  detail::all_reduce(
      model.run(), [] { return std::string("norm of the gradients"); },
      std::span<const double>(&mine, 1), std::span<double>(&all, 1),
      norm == Norm::infinity ? Reduction::max : Reduction::sum);
  return norm == Norm::infinity ? all : std::sqrt(all);
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
    throw argument_error("clip_gradients: the norm to cut down to is " + std::to_string(max_norm) +
                         "; it must be a number above 0");
  }
  const double found = gradient_norm(model, norm);
  if (!std::isfinite(found)) {
    throw numeric_error("the norm of all gradients is " + std::to_string(found) +
                        ", though the loss is finite: a gradient overflowed on its way back. Try a "
                        "smaller learning rate or, for fp16, a LossScaler");
  }
  const double factor = max_norm / (found + 1e-6);
  if (factor < 1) detail::scale_gradients(model, factor);
  return found;
}

}  // namespace shardwise

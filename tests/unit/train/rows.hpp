#pragma once
// What the tests of losses and steps share.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/redistribute/run.hpp"
#include "shardwise/train/loss.hpp"
#include "support/largest_difference.hpp"
#include "witness/formula.hpp"

namespace testing {

using namespace shardwise;

using Batch = Sharded<Axis::batch>;
using Sequence = Sharded<Axis::sequence>;
using Feature = Sharded<Axis::feature>;

/// What rounding of dtype T leaves of a loss or gradient: its eps, with room for a few operations.
template <class T>
constexpr double rounding = 1e-14;
template <>
inline constexpr double rounding<float> = 2e-6;
template <>
inline constexpr double rounding<bf16> = 0.02;
template <>
inline constexpr double rounding<fp16> = 0.003;

/// A whole tensor of T out of numbers.
template <Real T>
Tensor<T, Invariant> tensor_of(const Shape& shape, Place place,
                               const std::vector<double>& numbers) {
  Tensor<T, Invariant> tensor(shape, place);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    tensor[i] = static_cast<T>(static_cast<accumulate_t<T>>(numbers[i]));
  }
  return tensor;
}

inline std::vector<double> made(std::int64_t number, std::size_t size, double factor = 1) {
  std::vector<double> numbers(size);
  for (std::size_t i = 0; i < size; ++i) {
    numbers[i] = factor * witness::made(number, static_cast<std::int64_t>(i));
  }
  return numbers;
}

inline Tensor<std::int32_t, Invariant> made_labels(const Shape& shape, Place place,
                                                   std::size_t classes) {
  Tensor<std::int32_t, Invariant> labels(shape, place);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    labels[i] =
        witness::made_label(static_cast<std::int64_t>(i), static_cast<std::int64_t>(classes));
  }
  return labels;
}

struct LossResult {
  double loss = 0;
  std::vector<double> gradient;  ///< of the whole prediction
};

/// The loss of a prediction that is laid out as L, and the whole gradient.
template <Layout L, Real T, Communicator C, class Chosen, class Target>
LossResult loss_of(C& ranks, const Chosen& chosen, const Shape& shape,
                   const std::vector<double>& prediction, const Target& target,
                   detail::BatchInStep share = {1, 1}) {
  using Ctx = Context<T, Reference, C>;
  using A = accumulate_t<T>;
  Reference backend;
  Run<Ctx> run{ranks, ranks, backend};
  const Place place = place_of(ranks);
  const auto whole = tensor_of<T>(shape, place, prediction);
  Tensor<T, L> mine(shape, place);
  Tensor<A, L> gradient(shape, place);
  std::fill_n(gradient.data(), gradient.size(), A(7));  // which the loss overwrites
  Tensor<A, Invariant> whole_gradient(shape, place);
  redistribute(ranks, run.pool, whole.view(), mine.view());
  LossFrame<Ctx, typename Chosen::template exchanges<L>> frame(
      run, detail::exchange_shapes_of<L>(chosen, shape), share);
  LossResult result;
  result.loss = chosen(frame, View<const T, L>(mine.view()), target, gradient.view());
  redistribute(ranks, run.pool, View<const A, L>(gradient.view()), whole_gradient.view());
  for (const A element : whole_gradient.view().span()) {
    result.gradient.push_back(static_cast<double>(element));
  }
  return result;
}

/// Adds seven samples in two batches of 3 and 4, and returns the loss.
template <class Step, class Loss>
double add_parts(Step& step, const Tensor<double, Invariant>& x,
                 const Tensor<std::int32_t, Invariant>& labels, const Loss& loss) {
  const Dim features = x.global()[1];
  double sum = 0;
  for (const std::size_t first : {std::size_t{0}, std::size_t{3}}) {
    const Dim some{Axis::batch, first == 0 ? std::size_t{3} : std::size_t{4}};
    const View<const double, Invariant> x_part(x.data() + features.extent() * first,
                                               Shape{some, features}, x.view().place());
    const View<const std::int32_t, Invariant> labels_part(labels.data() + first, Shape{some},
                                                          labels.view().place());
    sum += step.add(x_part, labels_part, loss);
  }
  return sum;
}

}  // namespace testing

#pragma once
// A layer on the tensors of a witness, and what it did against what PyTorch computed.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ranks/model_observe.hpp"
#include "support/largest_difference.hpp"
#include "witness/values.hpp"

namespace testing {

/// The numbers of the made-up tensors that a witness was computed with: of the input, of the first
/// parameter (those behind it count on), and of the gradient of the output.
struct WitnessNumbers {
  std::uint64_t x, parameters, dy;
};

/// The tensor with this number, as it is.
struct AsMade {
  Whole operator()(std::uint64_t number, std::size_t count) const {
    return elements(Data::reals, number, count);
  }
};

/// The same, with `offset` added to tensor `number`, and rounded to T.
template <class T>
struct RoundedTo {
  std::uint64_t number = 0;
  double offset = 0;

  Whole operator()(std::uint64_t of, std::size_t count) const {
    using A = shardwise::accumulate_t<T>;
    Whole whole = AsMade{}(of, count);
    for (double& value : whole)
      value = static_cast<double>(
          static_cast<A>(static_cast<T>(static_cast<A>(value + (of == number ? offset : 0)))));
    return whole;
  }
};

/// The distance of 1 from the next number of T.
template <class T>
constexpr double eps = std::is_same_v<T, shardwise::bf16> ? 0x1p-7
                       : std::is_same_v<T, shardwise::fp16>
                           ? 0x1p-10
                           : std::numeric_limits<shardwise::accumulate_t<T>>::epsilon();

/// A layer's y, dx, settled gradients ("dweight") and buffers on the tensors of a witness, or on
/// what `made(number, count)` makes of them. What has buffers is evaluated too.
template <class T, class E, class C = Ranks, class Layer, class Made = AsMade>
Observed run_on_witness(const Layer& layer, const Shape& in, int ranks,
                        const WitnessNumbers& numbers, Made made = {}) {
  using namespace shardwise;
  Recorder recorder(ranks);
  on_ranks<C>(ranks, [&](C& c) {
    Model<Layer, Context<T, Reference, C>, E, TrainWithInputGradient> model(layer, c, Seed{1}, in);
    const auto tensor = [&]<class L>(L, std::uint64_t number, const Shape& shape) {
      return part_of<T, L>(made(number, shape.elements()), shape, place_of(c));
    };
    std::vector<std::pair<std::string, Shape>> parameters;
    model.visit_parameters([&](auto& p) { parameters.emplace_back(p.name, p.spec.shape); });
    for (std::uint64_t number = numbers.parameters; const auto& [name, shape] : parameters)
      model.set(name, tensor(Invariant{}, number++, shape).view());
    const auto x = tensor(typename E::offered{}, numbers.x, in);
    recorder.put("y", model.forward(x.view()));
    const auto dy = tensor(dual_t<typename E::wanted>{}, numbers.dy, layer.output_shape(in));
    recorder.put("dx", model.backward(dy.view()));
    model.settle_gradients();
    model.visit_parameters([&](auto& p) { recorder.put("d" + p.name, p.gradient); });
    bool has_buffers = false;
    model.visit_buffers([&](auto& b) {
      recorder.put(b.name, b.value);
      has_buffers = true;
    });
    if (has_buffers) recorder.put("evaluated", model.evaluate(x.view()));
  });
  return recorder.take();
}

/// The largest difference.
struct Absolute {
  double operator()(std::span<const double> ours, std::span<const double> theirs) const {
    return largest_difference(ours, theirs);
  }
};

/// The largest difference, relative to the largest element or to 1.
struct Relative {
  double operator()(std::span<const double> ours, std::span<const double> theirs) const {
    double scale = 1;
    for (const double number : theirs) scale = std::max(scale, std::abs(number));
    return largest_difference(ours, theirs) / scale;
  }
};

/// Each tensor that was observed is one of theirs, each of theirs was observed, and they differ by
/// at most `bound`.
template <class Difference = Absolute>
void check_agrees(const Observed& ours, const witness::Values& theirs, double bound,
                  Difference difference = {}) {
  CHECK(ours.tensors.size() == theirs.tensors().size());
  for (const auto& tensor : theirs.tensors()) {
    CAPTURE(tensor.first);
    CHECK(difference(ours[tensor.first], tensor.second) <= bound);
  }
}

/// Each tensor of `exact` was observed, and they differ by at most `bound`, relative to the largest
/// element or to 1.
inline void check_near(const Observed& ours, const Observed& exact, double bound) {
  for (const auto& tensor : exact.tensors) {
    CAPTURE(tensor.first);
    CHECK(Relative{}(ours[tensor.first], tensor.second) <= bound);
  }
}

/// What a layer is held against: theirs, for tensors with these numbers, on so many ranks.
struct AgainstWitness {
  const witness::Values& theirs;
  WitnessNumbers numbers;
  std::vector<int> ranks;
  double bound;
};

/// A layer in T agrees with a witness between each of the Ends Es.
template <class T, class... Es, class Layer, class Made = AsMade, class Difference = Absolute>
void check_between(const Layer& layer, const Shape& in, const AgainstWitness& against,
                   Made made = {}, Difference difference = {}) {
  const auto at = [&]<class E>(std::type_identity<E>) {
    for (const int ranks : against.ranks) {
      CAPTURE(against.theirs.path());
      CAPTURE(ranks);
      CAPTURE(shardwise::layout_name<typename E::offered>());
      CAPTURE(shardwise::name(shardwise::dtype_v<T>));
      check_agrees(run_on_witness<T, E>(layer, in, ranks, against.numbers, made), against.theirs,
                   against.bound, difference);
    }
  };
  (at(std::type_identity<Es>{}), ...);
}

/// The same with input and output in each of the layouts.
template <class T, class... Layouts, class... More>
void check_in(const More&... more) {
  check_between<T, shardwise::Ends<Layouts, Layouts>...>(more...);
}

}  // namespace testing

#pragma once
// The members of a loss, its frame, and its collectives.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/independent_loop.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/model/exchanges.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/value.hpp"

namespace shardwise {

/// How a loss combines the terms of a step, of all its batches and ranks.
enum class LossReduction : std::uint8_t {
  mean,  ///< divided by their number, or by the weights of their labels
  sum    ///< not divided
};

namespace detail {

/// "mean".
constexpr std::string_view word(LossReduction reduction) {
  return reduction == LossReduction::mean ? "mean" : "sum";
}

/// One double of each rank, summed.
using SumOfRanks = Exchange<Redistribute<Partial, Invariant>, Reduction::sum, double>;

/// Whether a loss says the shapes of its exchanges.
template <class Chosen, class L>
concept SaysShapes = requires(const Chosen& loss, const Shape& prediction) {
  loss.template exchange_shapes<L>(prediction);
};

/// Whether it has a member of that name in any form; of templates nvcc does not know.
template <class Chosen>
concept NamesShapes = requires {
  &Chosen::exchange_shapes;
}
|| requires { &Chosen::template exchange_shapes<Invariant>; };

/// The shapes of the exchanges of `loss`: those that it says, or of one number each.
template <Layout L, class Chosen>
constexpr auto exchange_shapes_of([[maybe_unused]] const Chosen& loss,
                                  [[maybe_unused]] const Shape& prediction) {
  if constexpr (SaysShapes<Chosen, L>) {
    return loss.template exchange_shapes<L>(prediction);
  } else {
    return std::array<Shape, std::tuple_size_v<typename Chosen::template exchanges<L>>>{};
  }
}

/// Whether a term writes what no other term reads, beside its number. A loop that writes and adds
/// has no vectors.
template <class Term>
inline constexpr bool writes = false;
template <class Term>
requires(Term::writes) inline constexpr bool writes<Term> = true;

/// Σ term(k) over k in [0, n) on the host, in the order of one piece of `lane_reduce`. Terms that
/// write are computed first, some at a time, and then added.
template <class Term>
double sum_on_host(std::size_t n, const Term& given) {
  if constexpr (!writes<Term>) {
    return lane_reduce(n, 0.0, given, Plus{});
  } else {
    constexpr std::size_t lanes = 16, at_a_time = 4 * lanes;
    std::array<double, lanes> sums{};
    in_widest_vectors([&] {
      const Term term = given;
      decltype(term(n)) terms[at_a_time];
      for (std::size_t first = 0; first < n; first += at_a_time) {
        const std::size_t count = std::min<std::size_t>(at_a_time, n - first);
        plain_loop(count, [&terms, &term, first](std::size_t k) { terms[k] = term(first + k); });
        combine_into(
            sums, 0, count, [&terms](std::size_t k) { return terms[k]; }, Plus{});
      }
    });
    return std::accumulate(sums.begin(), sums.end(), 0.0);
  }
}

}  // namespace detail

/// The exchanges of a loss that adds up terms, each of which one rank computes: the sum of the
/// ranks' sums if the prediction is split, and nothing if each rank has all of it.
template <Layout L>
using SumOfTerms =
    std::conditional_t<std::same_as<L, Invariant>, std::tuple<>, std::tuple<detail::SumOfRanks>>;

namespace detail {

/// The samples of one batch, and of all batches of its step together.
struct BatchInStep {
  std::size_t samples = 1;  ///< of this batch, over all ranks
  std::size_t of_step = 1;  ///< of all batches of the step, over all ranks
  /// Whether the loss is that of a rank's slice of a batch, which may be empty.
  bool is_slice = false;
  ///@{
  /// Tokens of each sample in the slice, and in the whole batch, if ranks have different ones.
  std::size_t tokens = 1;
  std::size_t of_tokens = 1;
  ///@}
};

/// A sum of a loss's terms on a device, divided by a number of the host.
template <DeviceBackend B>
class DeviceLoss {
 public:
  /// `sum` has one element.
  DeviceLoss(B& backend, Value<double, Invariant>&& sum)
      : backend_(&backend), sum_(std::move(sum)) {}

  /// Reads the sum, and waits for it.
  operator double() const {
    double sum = 0;
    backend_->to_host(data(), 1, &sum);
    return sum / divisor_;
  }

  /// Does not read the sum.
  template <class Number>
  requires(std::is_arithmetic_v<Number>) DeviceLoss operator/(Number divisor) const {
    DeviceLoss quotient(*this);
    quotient.divisor_ *= static_cast<double>(divisor);
    return quotient;
  }

  ///@{
  /// The sum, and its divisor.
  const double* data() const { return sum_.view().data(); }
  double divisor() const { return divisor_; }
  ///@}

 private:
  B* backend_;
  Value<double, Invariant> sum_;
  double divisor_ = 1;
};

[[noreturn]] void throw_for_no_samples();
}  // namespace detail

/// A loss's part of the rank's run: its exchanges, and its share of the step.
template <class Context, class Exchanges>
class LossFrame : public detail::Exchanger<Context, Exchanges> {
  using Base = detail::Exchanger<Context, Exchanges>;

 public:
  /// Made for one call; `exchange_shapes` are those of the loss.
  LossFrame(Run<Context>& run, const typename Base::Shapes& exchange_shapes,
            detail::BatchInStep in_step, bool is_recorded = false)
      : Base(run, exchange_shapes), run_(run), in_step_(in_step), is_recorded_(is_recorded) {}

  /// The number of terms of the whole step's mean, if this batch has `terms` of them over all
  /// ranks. The sum of the batch's terms, divided by this, is its part of the step's loss.
  /// throws   argument_error if there are none, unless the batch is an empty slice of a larger one
  double terms_of_step(std::size_t terms) const {
    const std::size_t here = in_step_.samples * in_step_.tokens;
    if (in_step_.is_slice && here == 0) return static_cast<double>(in_step_.of_step);
    if (terms == 0 || here == 0) {
      detail::throw_for_no_samples();
    }
    return static_cast<double>(terms) * static_cast<double>(in_step_.of_step * in_step_.of_tokens) /
           static_cast<double>(here);
  }

  /// The number by which a loss divides the sum of the batch's terms: `terms_of_step` for a mean,
  /// and 1 for a sum.
  /// throws   as terms_of_step
  double divisor_of_step(LossReduction reduction, std::size_t terms) const {
    const double of_step = terms_of_step(terms);
    return reduction == LossReduction::mean ? of_step : 1;
  }

  /// The backend that computes.
  typename Context::backend& backend() { return run_.backend; }
  /// Memory of the backend.
  Pool& pool() { return run_.pool; }

  /// Whether this batch is all of its step.
  bool is_whole_step() const { return !in_step_.is_slice && in_step_.samples == in_step_.of_step; }

  /// Whether the loss is recorded: then it must not read from a device, and for a wrong target it
  /// must make the sum of its terms NaN.
  bool is_recorded() const { return is_recorded_; }

  /// term(0) + ... + term(n - 1), of doubles: a double, or a DeviceLoss, which is converted to
  /// double when it is needed. `term` is a function object as in `DeviceBackend`.
  template <class Term>
  auto sum(std::size_t n, const Term& term) {
    if constexpr (DeviceBackend<typename Context::backend>) {
      Value<double, Invariant> there(run_.pool, Shape{}, run_.place());
      detail::reduce(run_.backend, n, 0.0, term, detail::Plus{}, there.writable().data());
      return detail::DeviceLoss(run_.backend, std::move(there));
    } else {
      return detail::sum_on_host(n, term);
    }
  }

  /// The same over all ranks; each rank has its own n terms. Exchange Index must be Partial ->
  /// Invariant, of one double.
  template <std::size_t Index, class Term>
  auto sum_of_ranks(std::size_t n, const Term& term) {
    auto mine = this->template exchange_input<Index>();
    static_assert(std::same_as<typename decltype(mine.writable())::value_type, double>,
                  "sum_of_ranks adds doubles. Name the exchange as one of them: "
                  "Exchange<Redistribute<Partial, Invariant>, Reduction::sum, double>.");
    if constexpr (DeviceBackend<typename Context::backend>) {
      detail::reduce(run_.backend, n, 0.0, term, detail::Plus{}, mine.writable().data());
      return detail::DeviceLoss(run_.backend, this->template exchange<Index>(std::move(mine)));
    } else {
      *mine.writable().data() = detail::sum_on_host(n, term);
      const auto all = this->template exchange<Index>(std::move(mine));
      return *all.view().data();
    }
  }

  /// The sum over all ranks by the loss's last exchange, or that of this rank alone if the loss has
  /// no exchanges. `SumOfTerms` are such exchanges.
  template <class Term>
  auto sum_of_terms(std::size_t n, const Term& term) {
    if constexpr (Base::count == 0) {
      return sum(n, term);
    } else {
      return sum_of_ranks<Base::count - 1>(n, term);
    }
  }

 private:
  Run<Context>& run_;
  detail::BatchInStep in_step_;
  bool is_recorded_;
};

/// A loss computes from a prediction and a target one number, the same on every rank, and the
/// gradient of the prediction. It has no access to a communicator, but lists its exchanges, as a
/// layer does.
///
///     struct Mean {                                            // a minimal loss
///       template <Layout L>
///       using exchanges = SumOfTerms<L>;            // or others: Exchange<...>, as in layer.hpp
///       template <class Frame, Real T, Layout L>
///       auto operator()(Frame& frame, View<const T, L> prediction, Target target,
///                       View<accumulate_t<T>, dual_t<L>> gradient) const;  // assigns it
///     };
///
/// It returns a double, or a sum of the frame divided by a number, which a RecordedStep can
/// record. Loss and gradient are sums over the terms of the batch, divided by
/// `frame.divisor_of_step(reduction, terms)`, or by `frame.terms_of_step(terms)` if the loss is
/// always a mean; `terms` counts those of the whole batch, not of a rank. If an exchange is of more
/// than one number, the loss has `template <Layout L> exchange_shapes(const Shape& prediction)`,
/// which returns a std::array of the global shape of each. The prediction is whole or in shards;
/// `target` is Invariant or, if the loss supports it, has the layout of the
/// prediction. `loss.visit_options(f)`, if there is one, calls f(name, value) for each option, as
/// that of an UpdateRule, or ClassWeights: ranks compare them. A loss may have
/// `require_target(prediction, target)`, which throws for global shapes
/// that do not fit: a step calls it before the model sends anything. `check_loss` of `testing/`
/// tests a loss.
///
/// On a mesh a loss computes with a slice of the batch as with one of several batches of a step,
/// and the results are added over the ranks that have other samples.
///
/// valid: `CrossEntropy`, `MeanSquaredError`      invalid: `int`, `Relu`
template <class L>
concept Loss = requires(const L& loss, const Shape& prediction) {
  typename L::template exchanges<Invariant>;
  requires detail::SaysShapes<L, Invariant> || !detail::NamesShapes<L>;
  {
    detail::exchange_shapes_of<Invariant>(loss, prediction)
    } -> std::convertible_to<
        std::array<Shape, std::tuple_size_v<typename L::template exchanges<Invariant>>>>;
};

/// The collectives of `loss` for a prediction of global shape `prediction` in the layout L, on a
/// mesh of these sizes or on ranks of one axis.
template <Layout L, Loss Chosen>
constexpr CollectiveList plan_loss(const Chosen& loss, const Shape& prediction,
                                   Dtype dtype = Dtype::float32, const mesh& sizes = {}) {
  using Exchanges = typename Chosen::template exchanges<L>;
  constexpr std::size_t count = std::tuple_size_v<Exchanges>;
  CollectiveList list;
  if constexpr (count > 0) {
    detail::add_exchanges<Exchanges>(
        list, detail::exchange_shapes_of<L>(loss, prediction), Sending(dtype).exchanges(), sizes,
        detail::axis_over_context(prediction), std::make_index_sequence<count>{});
  }
  detail::add_over_samples(list, all_reduce(4, Dtype::float64), sizes);
  return list;
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void throw_for_no_samples() {
  throw argument_error(
      "the loss is made of samples, but the whole batch is empty: give at least one");
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

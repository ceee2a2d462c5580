#pragma once
// What an update rule is, and its loop over the elements of parameters.

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "shardwise/backend/detail/changing.hpp"
#include "shardwise/comm/given_options.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/model/parameter_memory.hpp"
#include "shardwise/model/precision.hpp"

namespace shardwise {

/// The update of one parameter: options in a struct, and arithmetic for one element.
///
///     rule.learning_rate                    may change from step to step
///     rule.check()                          throws argument_error for options that make no sense
///     rule.moments()                        numbers that are kept for each element; static
///                                           constexpr, if it depends on no option: then the loop
///                                           over the elements has vectors
///     rule.update<A>(step)                  what happens in that step, counted from 1: an object
///     update(value, gradient, moments)      that returns the new value, and changes the moments
///     update.in_form(f)                     if moments depend on options, and the loop shall have
///                                           vectors: f(count, step), their number as a
///                                           std::integral_constant, and update for these options.
///                                           `has_forms` of update is then true
///
/// `rule.visit_options(f)`, if there is one, calls f(name, value) for each option, which is a
/// number, a bool or a word that lives as long as the program: an error about ranks with different
/// options names them.
///
/// If options of a rule change what its moments are, but not their number, `rule.moment_names()`
/// says which they are, as a std::string; a checkpoint is loaded only into the same.
///
/// valid: `Sgd`, `AdamW`, `RmsProp`
template <class R>
concept UpdateRule = requires(R rule, const R& constant, float* moments) {
  { rule.learning_rate } -> std::convertible_to<double>;
  constant.check();
  { constant.moments() } -> std::same_as<std::size_t>;
  { constant.template update<float>(std::uint64_t{1})(1.0F, 1.0F, moments) } -> std::same_as<float>;
};

/// The parameters to which the weight decay of a rule applies.
enum class Decay : std::uint8_t {
  all,    ///< all of them, as in torch.optim
  chosen  ///< those whose ParameterSpec says so: by default all but biases and weights of norms
};

namespace detail {

/// "all".
constexpr std::string_view word(Decay decay) { return decay == Decay::all ? "all" : "chosen"; }

/// What three updates of a rule make of the number 1; 0 for one with many moments.
template <class Rule>
double probed(const Rule& rule) {
  std::array<double, 8> moments{};
  if (rule.moments() > moments.size()) return 0;
  double value = 1;
  for (const std::uint64_t step : {1U, 2U, 3U})
    value = rule.template update<double>(step)(value, 1.0 / static_cast<double>(step) - 0.6,
                                               moments.data());
  return value;
}

/// Adds the options of a rule. Of one that does not tell them the learning rate, and what it makes
/// of a number.
template <class Rule>
void add_rule(GivenOptions& to, const Rule& rule) {
  to.add("rule", raw_type_name<Rule>());
  if constexpr (requires { rule.visit_options([](std::string_view, auto) {}); }) {
    add_options(to, rule);
  } else {
    to.add("learning_rate", rule.learning_rate);
    to.add("third_update_of_1", probed(rule));
  }
}

/// A rule whose weight decay may apply to some parameters only.
template <class Rule>
concept ChoosesDecay = requires(const Rule& rule) {
  { rule.decay } -> std::convertible_to<Decay>;
};

/// The rule without weight decay.
template <class Rule>
Rule without_decay(Rule rule) {
  if constexpr (ChoosesDecay<Rule>) rule.weight_decay = 0;
  return rule;
}

/// Whether the weight decay of the rule applies to some parameters only.
template <class Rule>
bool decays_chosen([[maybe_unused]] const Rule& rule) {
  if constexpr (ChoosesDecay<Rule>) {
    return rule.decay == Decay::chosen;
  } else {
    return false;
  }
}

/// Throws argument_error unless `value` is at least 0 (and below `end`).
void check_option(const char* rule, const char* option, double value, double end);

/// Whether a loop takes a form of the update. One on a device reads the update when it runs, and so
/// does not.
template <class Update>
inline constexpr bool update_has_forms = false;
template <class U>
requires(U::has_forms) inline constexpr bool update_has_forms<Held<U>> = true;

/// The number of moments of a rule, a constant if it depends on no option.
template <class Rule>
constexpr auto moments_of([[maybe_unused]] const Rule& rule) {
  if constexpr (requires { std::integral_constant<std::size_t, Rule::moments()>{}; }) {
    return std::integral_constant<std::size_t, Rule::moments()>{};
  } else {
    return rule.moments();
  }
}

/// The update of one element of a model of Precision P; Count is what `moments_of` returns.
template <class P, class Update, class Given, class Count>
struct UpdateElement {
  using T = typename P::parameter;
  using A = accumulate_t<T>;
  static constexpr bool has_forms = update_has_forms<Update>;

  Update update;                            ///< the rule's function for the step
  [[no_unique_address]] Count per_element;  ///< number of moments
  A* moments;                               ///< of all elements
  T* values;                                ///< the parameters
  const Given* gradients;                   ///< in the dtype in which layers wrote them
  typename P::compute* copies = nullptr;    ///< the memory that layers read, if it is not `values`

  constexpr void operator()(std::size_t i) const {
    const auto gradient = rounded<typename P::gradient>(gradients[i]);
    values[i] = static_cast<T>(
        (*update)(static_cast<A>(values[i]), rounded<A>(gradient), moments + i * per_element));
    if constexpr (ParameterMemory<P>::copies) copies[i] = rounded<typename P::compute>(values[i]);
  }

  /// Calls run(this with a constant number of moments).
  template <class Run>
  constexpr void in_form(const Run& run) const {
    (*update).in_form([&]<class C, class Step>(C count, const Step& step) {
      run(UpdateElement<P, Held<Step>, Given, C>{
          {step}, count, moments, values, gradients, copies});
    });
  }
};

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

[[gnu::noinline]] SHARDWISE_INLINE void check_option(const char* rule, const char* option,
                                                     double value, double end) {
  if (std::isfinite(value) && value >= 0 && value < end) return;
  const std::string below = std::isfinite(end) ? sentence({" and below ", end}) : "";
  throw argument_error({rule, ": ", option, " is ", value, "; it must be at least 0", below});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

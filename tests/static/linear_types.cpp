// One template makes every linear layer, and its sizes are in the type or given once.

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/layer_checks.hpp"

using namespace shardwise;

namespace {

using Features = Sharded<Axis::feature>;
using Batch = Sharded<Axis::batch>;
using Sequence = Sharded<Axis::sequence>;

// --- one template ------------------------------------------------------------------------------

static_assert(std::same_as<ColumnParallelLinear<3, 4>, Linear<split::output, 3, 4>>);
static_assert(std::same_as<ColumnParallelLinear<3, 4>, Linear<split::output, 3, 4, true>>);
static_assert(std::same_as<RowParallelLinear<3, 4>, Linear<split::input, 3, 4>>);
static_assert(std::same_as<ColumnParallelLinear<3, 4, false>, Linear<split::output, 3, 4, false>>);
static_assert(std::same_as<RowParallelLinear<dynamic, 4>, Linear<split::input, dynamic, 4>>);
static_assert(!std::same_as<ColumnParallelLinear<3, 4>, RowParallelLinear<3, 4>>);

// Three splits and nothing else; tests/compile_fail holds the sentence for other ones.
static_assert(Split<split::none> && Split<split::output> && Split<split::input>);
static_assert(!Split<int> && !Split<Axis> && !Split<const split::none> && !Split<Features>);

// --- sizes -------------------------------------------------------------------------------------

template <std::size_t In, std::size_t Out>
using L = Linear<split::output, In, Out>;

// All in the type: nothing is given. Too many or too few numbers are a sentence of their own, see
// tests/compile_fail.
static_assert(detail::HasAllSizes<L<3, 4>>);

// One in the type: the other is given, and only that.
static_assert(!detail::HasAllSizes<L<dynamic, 4>>);
static_assert(std::is_constructible_v<L<dynamic, 4>, std::size_t>);
static_assert(!detail::HasAllSizes<L<3, dynamic>>);
static_assert(std::is_constructible_v<L<3, dynamic>, std::size_t>);

// None in the type: both are given.
static_assert(!detail::HasAllSizes<L<dynamic, dynamic>>);
static_assert(std::is_constructible_v<L<dynamic, dynamic>, std::size_t, std::size_t>);

// A number is no layer.
static_assert(!std::is_convertible_v<std::size_t, L<dynamic, 4>>);
static_assert(!std::is_convertible_v<std::size_t, L<3, dynamic>>);

static_assert(L<3, 4>{}.in() == 3 && L<3, 4>{}.out() == 4);
static_assert(L<dynamic, 4>(3).in() == 3 && L<dynamic, 4>(3).out() == 4);
static_assert(L<3, dynamic>(4).in() == 3 && L<3, dynamic>(4).out() == 4);
static_assert(L<dynamic, dynamic>(3, 4).in() == 3 && L<dynamic, dynamic>(3, 4).out() == 4);

// A size in the type takes no room.
static_assert(sizeof(L<3, 4>) < sizeof(L<dynamic, 4>));
static_assert(sizeof(L<dynamic, 4>) < sizeof(L<dynamic, dynamic>));

// Both say the same about shapes.
constexpr Shape x{{Axis::batch, 5}, {Axis::feature, 3}};
static_assert(L<3, 4>{}.output_shape(x) == Shape{{Axis::batch, 5}, {Axis::feature, 4}});
static_assert(L<dynamic, dynamic>(3, 4).output_shape(x) == L<3, 4>{}.output_shape(x));

// --- parameters --------------------------------------------------------------------------------

// Weights lie [out, in]; the units and grain of the input's features become those of the weight.
static_assert(L<3, 4>{}.parameter_specs(x).size() == 2);
static_assert(L<3, 4>{}.parameter_specs(x)[0].name == "weight");
static_assert(L<3, 4>{}.parameter_specs(x)[0].shape == Shape{{Axis::output, 4}, {Axis::input, 3}});
static_assert(L<3, 4>{}.parameter_specs(x)[1].name == "bias");
static_assert(L<3, 4>{}.parameter_specs(x)[1].shape == Shape{{Axis::output, 4}});
static_assert(Linear<split::none, 3, 4, false>{}.parameter_specs(x).size() == 1);
constexpr Shape planes{{Axis::batch, 5}, {Axis::feature, 2, 6}};
static_assert(RowParallelLinear<12, 4>{}.parameter_specs(planes)[0].shape ==
              Shape{{Axis::output, 4}, {Axis::input, 2, 6}});
// Fans are those of the whole layer, whatever a rank holds of it.
static_assert(L<3, 4>{}.parameter_specs(x)[0].fans.in == 3);
static_assert(L<3, 4>{}.parameter_specs(x)[0].fans.out == 4);

// How the ranks store them, how the layer uses them, and what the gradient therefore owes.
template <class Layer, class In, std::size_t I, class Stored, class Used, Movement Debt>
constexpr bool parameter() {
  using P = std::tuple_element_t<I, detail::parameters_t<Layer, In>>;
  static_assert(std::same_as<P, ParameterUse<Stored, Used>>);
  static_assert(P::debt::movement == Debt);
  return true;
}
using Column = ColumnParallelLinear<3, 4>;
using Row = RowParallelLinear<3, 4>;
using Whole = Linear<split::none, 3, 4>;
using ByOutput = Sharded<Axis::output>;
using ByInput = Sharded<Axis::input>;
using enum Movement;
static_assert(parameter<Column, Replicated, 0, ByOutput, ByOutput, none>());
static_assert(parameter<Column, Replicated, 1, ByOutput, ByOutput, none>());
static_assert(parameter<Row, Features, 0, ByInput, ByInput, none>());
static_assert(
    parameter<Row, Features, 1, Invariant, Partial, none>());  // counts once, owes nothing
static_assert(parameter<Whole, Invariant, 0, Invariant, Invariant, none>());
static_assert(parameter<Whole, Batch, 0, Invariant, Replicated, all_reduce>());
static_assert(parameter<Whole, Batch, 1, Invariant, Replicated, all_reduce>());
static_assert(parameter<Whole, Sequence, 0, Invariant, Replicated, all_reduce>());
static_assert(parameter<Whole, Sequence, 1, Invariant, Replicated, all_reduce>());
static_assert(std::tuple_size_v<detail::parameters_t<Linear<split::none, 3, 4, false>, Batch>> ==
              1);

}  // namespace

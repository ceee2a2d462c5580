// Which dtype does what, known to the compiler; and that one dtype for all costs nothing.

#include <concepts>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"

using namespace shardwise;

namespace {

template <class P, class C, class V, class G, class R>
constexpr bool is = std::same_as<typename P::compute, C>&& std::same_as<typename P::parameter, V>&&
    std::same_as<typename P::gradient, G>&& std::same_as<typename P::reduce, R>;

// What is left out follows from what stands before it: gradients from parameters.
static_assert(is<Precision<float>, float, float, float, float>);
static_assert(is<Precision<bf16, float>, bf16, float, float, float>);
static_assert(is<Precision<bf16, float, float, bf16>, bf16, float, float, bf16>);
static_assert(is<Precision<bf16, bf16, float>, bf16, bf16, float, float>);

// A dtype is short for a Precision in a Context.
template <class P>
using Of = Context<P, Reference, SingleRank>;
static_assert(std::same_as<Of<float>::precision, Precision<float>>);
static_assert(std::same_as<Of<Precision<bf16, float>>::precision, Precision<bf16, float>>);
static_assert(std::same_as<Of<Precision<bf16, float>>::dtype, bf16>);

static_assert(detail::PrecisionChoice<double> && detail::PrecisionChoice<Precision<bf16, float>>);
static_assert(!detail::PrecisionChoice<int>);  // layers do not compute with integers
static_assert(!detail::PrecisionChoice<SingleRank>);

// One dtype for all: layers read and write the parameters' own memory.
static_assert(!detail::ParameterMemory<Precision<float>>::copies);
static_assert(!detail::ParameterMemory<Precision<float>>::collects);
static_assert(detail::ParameterMemory<Precision<float>>::written_how(Write::add) == Write::add);
// Another one for gradients alone: only what layers write is brought there.
static_assert(!detail::ParameterMemory<Precision<bf16, bf16, float>>::copies);
static_assert(detail::ParameterMemory<Precision<bf16, bf16, float>>::collects);
static_assert(detail::ParameterMemory<Precision<bf16, float>>::copies);

// What goes in and comes out of a model.
using M = Model<Linear<split::none, 3, 2>, Of<Precision<bf16, float, double>>>;
static_assert(std::same_as<M::input_view::value_type, bf16>);
static_assert(std::same_as<M::output_view::value_type, bf16>);
static_assert(std::same_as<M::parameter_dtype, float>);
static_assert(std::same_as<M::gradient_dtype, double>);

// How a parameter is held follows from how it is stored and used.
template <class Stored, class Used>
constexpr detail::Holding held = detail::holding_of<ParameterUse<Stored, Used>>;
static_assert(held<Sharded<Axis::output>, Sharded<Axis::output>> == detail::Holding::split);
static_assert(held<Invariant, Invariant> == detail::Holding::alike);
static_assert(held<Invariant, Partial> ==
              detail::Holding::alike);  // the bias of a row-parallel layer
static_assert(held<Invariant, Replicated> == detail::Holding::owing);

}  // namespace

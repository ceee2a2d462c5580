// What layers do along the mesh axes that cut samples, tokens and rows, from their rules of
// layouts.

#include "shardwise/model/other_axes.hpp"

#include <concepts>

#include "shardwise/shardwise.hpp"

using namespace shardwise;
using detail::RuleOfRows;

namespace {

using Samples = Sharded<Axis::batch>;
using Tokens = Sharded<Axis::sequence>;
using Rows = Sharded<Axis::height>;
template <std::size_t Kernel, std::size_t Before>
using Halo = Haloed<Axis::height, Window{.kernel = Kernel, .before = Before, .after = Before}>;

/// Whether L takes and gives this where ranks along `context` cut its input by Cut.
template <class L, Axis Cut, class Taken, class Given>
constexpr bool is_rule =
    RuleOfRows<L, Cut>::runs&& std::same_as<typename RuleOfRows<L, Cut>::taken, Taken>&&
        std::same_as<typename RuleOfRows<L, Cut>::given, Given>;
template <class L, class Taken, class Given = Rows>
constexpr bool of_rows = is_rule<L, Axis::height, Taken, Given>;
template <class L, class Taken, class Given = Tokens>
constexpr bool of_tokens = is_rule<L, Axis::sequence, Taken, Given>;
template <class... Ls>
constexpr bool run_on_no_rows = (!RuleOfRows<Ls, Axis::height>::runs && ...);

template <class... Ls>
constexpr bool keep_rows = (of_rows<Ls, Rows> && ...);
template <class... Ls>
constexpr bool keep_tokens = (detail::computes_token_by_token<Ls> && ...);
template <class... Ls>
constexpr bool keep_samples = (detail::computes_sample_by_sample<Ls> && ...);

template <class S, auto Form = kernel(3, {.padding = 1})>
using Conv = Conv2d<S, 4, 8, Form>;
template <class S>
using Product = Linear<S, 4, 8>;

// Layers that compute each row by itself, or add sums of rows.
static_assert(
    keep_rows<Relu, Dropout<1, 4>, ChannelDropout<1, 4>, PRelu<8>, BatchNorm<8>, GroupNorm<2, 8>,
              InstanceNorm<8>, Identity, To<Invariant>, To<Partial>, Sum, PartialSum, Times<>,
              ScaleChannels<>, Concat<Axis::channel>, Conv<split::output, kernel(1)>>);
// A window reads rows beyond those of the rank, however channels are split.
static_assert(of_rows<Conv<split::none>, Halo<3, 1>> && of_rows<Conv<split::output>, Halo<3, 1>> &&
              of_rows<Conv<split::input>, Halo<3, 1>> && of_rows<Conv<split::width>, Halo<3, 1>> &&
              of_rows<Conv<split::height>, Halo<3, 1>>);
static_assert(of_rows<Upsample2d<2>, Haloed<Axis::height, Window{.repeats = 2}>>);
static_assert(of_rows<GlobalAveragePool, Rows, Partial>);
static_assert(of_rows<GlobalMaxPool, Rows, Invariant>);
// Features of whole images.
static_assert(of_rows<Flatten, Samples, Samples> && of_rows<PlanesToTokens, Samples, Samples>);
static_assert(RuleOfRows<PlanesToTokens, Axis::height>::makes_tokens &&
              !RuleOfRows<Flatten, Axis::height>::makes_tokens &&
              !RuleOfRows<FlattenFrom<Axis::height>, Axis::height>::makes_tokens);
static_assert(of_rows<FlattenFrom<Axis::height>, Samples, Samples>);
static_assert(of_rows<FlattenFrom<Axis::width>, Rows>);
static_assert(run_on_no_rows<Product<split::none>, Product<split::output>, Embedding<4, 8>,
                             Attend<>, Experts<>, Concat<Axis::height>>);

// Layers that compute each token by itself; an attention reads others by its operands.
static_assert(
    keep_tokens<Relu, Dropout<1, 4>, Softmax, LayerNorm<8>, RmsNorm<8>, HeadNorm<8>, Bias<8>, Rope,
                PositionEmbedding<4, 8>, PRelu<8>, BatchNorm<8>, Product<split::none>,
                Product<split::output>, Product<split::input>, HeadLinear<4, 2, 8>, Embedding<4, 8>,
                Embedding<4, 8, split::none>, Experts<>, Experts<split::none>, Attend<>, Identity,
                To<Tokens>, Sum, Times<>, Concat<Axis::feature>, FlattenFrom<Axis::feature>>);
static_assert(of_tokens<ClassToken<8>, Haloed<Axis::sequence, Window{.before = 1}>>);
static_assert(of_tokens<FirstRows, Tokens, Partial> && of_tokens<LastRows, Tokens, Partial>);
static_assert(of_tokens<FlattenFrom<Axis::sequence>, Samples, Samples>);
static_assert(!RuleOfRows<Concat<Axis::sequence>, Axis::sequence>::runs);

// Every layer has whole samples, but one that puts samples behind each other.
static_assert(
    keep_samples<Relu, Softmax, BatchNorm<8>, GroupNorm<2, 8>, GlobalMaxPool, Conv<split::output>,
                 Conv<split::group, kernel(3)>, Product<split::output>, Product<split::input>,
                 Embedding<4, 8>, Experts<>, Attend<>, ClassToken<8>, FirstRows, Flatten,
                 PlanesToTokens, Sum, To<Partial>, Concat<Axis::channel>>);
static_assert(!keep_samples<Concat<Axis::batch>>);

// What ranks combine of the numbers that layers exchange.
template <class L, std::size_t Index, bool Back>
constexpr auto combined =
    detail::combined_over<detail::exchanges_on_mesh_t<L, Invariant>, Index, Back>;
template <class L, std::size_t Index, bool Back, bool Samples, bool Tokens, bool Rows>
constexpr bool is_combined = combined<L, Index, Back>.has(Axis::batch) ==
                             Samples&& combined<L, Index, Back>.has(Axis::sequence) ==
                             Tokens&& combined<L, Index, Back>.has(Axis::height) == Rows;

static_assert(is_combined<BatchNorm<8>, 0, false, true, true, true> &&
              is_combined<BatchNorm<8>, 0, true, true, true, true>);
static_assert(is_combined<GroupNorm<2, 8>, 0, false, false, false, true> &&
              is_combined<GroupNorm<2, 8>, 0, true, false, false, true>);
static_assert(is_combined<GlobalMaxPool, 0, false, false, false, true> &&
              is_combined<GlobalMaxPool, 1, false, false, false, true>);
static_assert(is_combined<LayerNorm<8>, 0, false, false, false, false>);
static_assert(
    is_combined<Experts<split::expert, ExpertSizes{}, true>, 0, false, true, true, false> &&
    is_combined<Experts<split::expert, ExpertSizes{}, true>, 0, true, false, false, false>);

}  // namespace

// What a vision transformer and its layers take, give and send, known to the compiler.

#include "shardwise/models/vit.hpp"

#include <concepts>

#include "shardwise/layers/class_token.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/end_rows.hpp"
#include "shardwise/layers/planes_to_tokens.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/models/parallelism.hpp"

using namespace shardwise;

namespace {

using Batch = Sharded<Axis::batch>;
using Sequence = Sharded<Axis::sequence>;
using Feature = Sharded<Axis::feature>;
using Channel = Sharded<Axis::channel>;
using Height = Sharded<Axis::height>;

static_assert(Layer<FirstRows> && Layer<LastRows> && Layer<PlanesToTokens> && Layer<ClassToken<4>>);

template <class L, Layout Offered, Layout Wanted = Invariant>
using taken = detail::input_layout_at_t<L, Ends<Offered, Wanted>>;
template <class L, class In>
constexpr bool keeps = std::same_as<taken<L, In>, In>&& std::same_as<output_layout_t<L, In>, In>;

// The owner of a row gives it; all other layouts stay.
static_assert(std::same_as<output_layout_t<LastRows, Sequence>, Partial>);
static_assert(keeps<LastRows, Invariant> && keeps<LastRows, Replicated> &&
              keeps<LastRows, Partial>);
static_assert(keeps<FirstRows, Batch> && keeps<FirstRows, Feature>);
static_assert(std::same_as<detail::desired_input_layout_t<LastRows, Partial>, Invariant>);
static_assert(std::same_as<detail::desired_input_layout_t<LastRows, Feature>, Feature>);

// Channels become features; no rank has a part of a plane.
static_assert(std::same_as<output_layout_t<PlanesToTokens, Channel>, Feature>);
static_assert(std::same_as<taken<PlanesToTokens, Height>, Invariant>);
static_assert(std::same_as<taken<PlanesToTokens, Height, Feature>, Channel>);
static_assert(std::same_as<detail::desired_input_layout_t<PlanesToTokens, Feature>, Channel>);
static_assert(keeps<PlanesToTokens, Invariant> && keeps<PlanesToTokens, Partial>);
static_assert(keeps<PlanesToTokens, Replicated> && keeps<PlanesToTokens, Batch>);

// A sequence gets longer only where it is whole, and one rank alone would add to a sum.
using Token = ClassToken<8>;
static_assert(keeps<Token, Invariant> && keeps<Token, Batch> && keeps<Token, Feature>);
static_assert(std::same_as<taken<Token, Sequence>, Invariant>);
static_assert(std::same_as<taken<Token, Partial, Feature>, Feature>);
static_assert(std::same_as<taken<Token, Replicated>, Invariant>);

constexpr Shape tokens{{Axis::batch, 2}, {Axis::sequence, 6}, {Axis::feature, 8}};
static_assert(plan<Token, 4, Invariant, Invariant>(tokens).settle.empty());
static_assert(plan<Token, 4, Feature, Feature>(tokens).settle.empty());
static_assert(plan<Token, 4, Batch, Batch>(tokens).settle == CollectiveList{all_reduce(8)});

// --- a model of one block: 4 patches and the class token -----------------------------------------

constexpr VitConfig config{.channels = 1,
                           .side = 8,
                           .patch = 4,
                           .features = 8,
                           .hidden = 16,
                           .heads = 2,
                           .layers = 1,
                           .classes = 3};
static_assert(config.tokens() == 5);
constexpr Shape images{{Axis::batch, 2}, {Axis::channel, 1}, {Axis::height, 8}, {Axis::width, 8}};
constexpr std::size_t stream = 2 * 5 * 8, first = 2 * 8;

template <class P, Layout Logits, VitForm Form = VitForm{.patch = 4}>
constexpr Plan plan_in() {
  return plan_of<Ends<Invariant, Logits>, Train>(vit<P, Form>(config), 4, images);
}

// Patches are split by feature, and gathered once for the stream.
static_assert(plan_in<TensorParallel, Feature>().forward ==
              CollectiveList{all_gather(stream), all_reduce(stream), all_reduce(stream)});
static_assert(plan_in<TensorParallel, Feature>().backward ==
              CollectiveList{all_reduce(first), all_reduce(stream), all_reduce(stream)});
static_assert(plan_in<TensorParallel, Feature>().settle.empty());

// Dropout sends nothing.
constexpr VitForm dropping{.patch = 4, .dropped = 1, .of = 10};
static_assert(plan_in<TensorParallel, Feature, dropping>().forward ==
              plan_in<TensorParallel, Feature>().forward);
static_assert(plan_in<TensorParallel, Feature, dropping>().backward ==
              plan_in<TensorParallel, Feature>().backward);
static_assert(plan_in<TensorParallel, Feature, dropping>().settle.empty());

// The class tokens come from the rank that has them.
static_assert(plan_in<SequenceParallel, Feature>().forward ==
              CollectiveList{all_to_all(stream), all_gather(stream), reduce_scatter(stream),
                             all_gather(stream), reduce_scatter(stream), all_reduce(first)});

// Keys and values are gathered, and the gradient of the whole patches.
static_assert(plan_in<ContextParallel, Invariant>().forward ==
              CollectiveList{all_gather(stream), all_gather(stream), all_reduce(first)});
static_assert(plan_in<ContextParallel, Invariant>().backward ==
              CollectiveList{reduce_scatter(stream), reduce_scatter(stream), all_gather(stream)});

}  // namespace

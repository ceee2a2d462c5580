// The two passes: what each layer of a model is given, written out by hand.

#include <concepts>
#include <cstddef>
#include <tuple>
#include <utility>

#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/identity.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;

namespace {

using Features = Sharded<Axis::feature>;
using Channels = Sharded<Axis::channel>;
using Batch = Sharded<Axis::batch>;
using Sequence = Sharded<Axis::sequence>;

using Column = ColumnParallelLinear<8, 8>;
using Row = RowParallelLinear<8, 8>;
using Whole = Linear<split::none, 8, 8>;
using Drop = Dropout<1, 4>;

/// Whether the layers of M take `Taken...`, in order, and M then gives `Given`.
template <class M, class Offered, class Wanted, class Given, class... Taken>
constexpr bool decided() {
  static_assert(sizeof...(Taken) == M::size);
  return []<std::size_t... Is>(std::index_sequence<Is...>) {
    static_assert(
        (std::same_as<detail::input_layout_at_t<typename M::template layer_type<Is>,
                                                typename M::template ends_of<Is, Offered, Wanted>>,
                      std::tuple_element_t<Is, std::tuple<Taken...>>> &&
         ...));
    static_assert(std::same_as<detail::output_layout_at_t<M, Ends<Offered, Wanted>>, Given>);
    static_assert(std::same_as<output_layout_t<M, Offered, Wanted>, Given>);
    return true;
  }
  (std::make_index_sequence<M::size>{});
}

template <class L, class Offered, class Wanted>
using input_layout = detail::input_layout_at_t<L, Ends<Offered, Wanted>>;

// --- one layer ---------------------------------------------------------------------------------

// clang-format off
//                              offered     wanted      takes
static_assert(std::same_as<input_layout<Column, Invariant,  Invariant>, Replicated>);
static_assert(std::same_as<input_layout<Column, Sequence,   Sequence>,  Replicated>);
static_assert(std::same_as<input_layout<Column, Partial,    Features>,  Replicated>);
static_assert(std::same_as<input_layout<Row,    Invariant,  Invariant>, Features>);
static_assert(std::same_as<input_layout<Row,    Batch,      Batch>,     Features>);
static_assert(std::same_as<input_layout<Whole,  Invariant,  Batch>,     Invariant>);  // it does not move
static_assert(std::same_as<input_layout<Whole,  Batch,      Invariant>, Batch>);
static_assert(std::same_as<input_layout<Whole,  Sequence,   Invariant>, Sequence>);
static_assert(std::same_as<input_layout<Whole,  Features,   Invariant>, Invariant>);  // it needs whole rows
static_assert(std::same_as<input_layout<Whole,  Features,   Sequence>,  Sequence>);
static_assert(std::same_as<input_layout<Whole,  Partial,    Batch>,     Batch>);
static_assert(std::same_as<input_layout<Whole,  Partial,    Features>,  Invariant>);
static_assert(std::same_as<input_layout<Whole,  Replicated, Invariant>, Invariant>);
static_assert(std::same_as<input_layout<Relu,   Features,   Invariant>, Features>);
static_assert(std::same_as<input_layout<Relu,   Replicated, Invariant>, Replicated>);
static_assert(std::same_as<input_layout<Relu,   Partial,    Invariant>, Invariant>);  // a sum is completed
static_assert(std::same_as<input_layout<Relu,   Partial,    Replicated>, Invariant>);
static_assert(std::same_as<input_layout<Relu,   Partial,    Partial>,   Invariant>);
static_assert(std::same_as<input_layout<Relu,   Partial,    Features>,  Features>);   // where it is wanted
static_assert(std::same_as<input_layout<Drop,   Partial,    Sequence>,  Sequence>);
static_assert(std::same_as<input_layout<To<Invariant>, Features, Features>, Invariant>);
static_assert(std::same_as<input_layout<To<Batch>,     Partial,  Features>, Batch>);
static_assert(std::same_as<input_layout<Flatten, Channels,  Invariant>, Channels>);
static_assert(std::same_as<input_layout<Flatten, Sharded<Axis::height>, Invariant>, Invariant>);
static_assert(std::same_as<input_layout<Flatten, Sharded<Axis::height>, Features>, Channels>);
static_assert(std::same_as<input_layout<Flatten, Batch,     Features>,  Batch>);
static_assert(std::same_as<input_layout<Flatten, Partial,   Features>,  Partial>);    // it is linear

static_assert(std::same_as<output_layout_t<Column>, Features>);
static_assert(std::same_as<output_layout_t<Row>, Partial>);
static_assert(std::same_as<output_layout_t<Whole, Batch>, Batch>);
static_assert(std::same_as<output_layout_t<Flatten, Channels>, Features>);
static_assert(std::same_as<output_layout_t<Flatten, Batch>, Batch>);
static_assert(std::same_as<output_layout_t<To<Sequence>, Partial>, Sequence>);

// --- from right to left: what is wanted --------------------------------------------------------

static_assert(std::same_as<detail::desired_input_layout_t<Column, Features>, Replicated>);
static_assert(std::same_as<detail::desired_input_layout_t<Row, Invariant>, Features>);
static_assert(std::same_as<detail::desired_input_layout_t<Whole, Features>, Invariant>);
static_assert(std::same_as<detail::desired_input_layout_t<Whole, Sequence>, Sequence>);
static_assert(std::same_as<detail::desired_input_layout_t<Relu, Features>, Features>);      // passed on
static_assert(std::same_as<detail::desired_input_layout_t<Relu, Partial>, Invariant>);      // no sum reaches it
static_assert(std::same_as<detail::desired_input_layout_t<Flatten, Features>, Channels>);
static_assert(std::same_as<detail::desired_input_layout_t<To<Batch>, Features>, Batch>);
static_assert(std::same_as<detail::desired_input_layout_t<Sequential<Relu, Drop, Row>, Invariant>, Features>);
static_assert(std::same_as<detail::desired_input_layout_t<Sequential<Relu, Flatten, Row>, Invariant>, Channels>);
static_assert(std::same_as<detail::desired_input_layout_t<Sequential<Relu, Column, Row>, Invariant>, Replicated>);
static_assert(std::same_as<detail::desired_input_layout_t<Residual<Row>, Sequence>, Sequence>);
static_assert(std::same_as<detail::desired_input_layout_t<Residual<Row>, Partial>, Invariant>);
static_assert(std::same_as<detail::desired_input_layout_t<Repeat<3, Residual<Row>>, Sequence>, Sequence>);

// --- a model ------------------------------------------------------------------------------------

//                    model                                   offered    wanted     gives      takes...
static_assert(decided<Sequential<Column, Gelu, Row>,          Invariant, Invariant, Partial,   Replicated, Features, Features>());
static_assert(decided<Sequential<Column, Gelu, Row>,          Sequence,  Sequence,  Partial,   Replicated, Features, Features>());
static_assert(decided<Sequential<Column, Relu>,               Invariant, Invariant, Features,  Replicated, Features>());
static_assert(decided<Sequential<Column, To<Invariant>, Relu>, Invariant, Invariant, Invariant, Replicated, Invariant, Invariant>());
// Row, ReLU, row: the sum goes where the second row-parallel layer wants it.
static_assert(decided<Sequential<Row, Relu, Row>,             Features,  Invariant, Partial,   Features, Features, Features>());
static_assert(decided<Sequential<Row, Relu, Drop, Row>,       Features,  Invariant, Partial,   Features, Features, Features, Features>());
static_assert(decided<Sequential<Row, Relu, Column>,          Features,  Invariant, Features,  Features, Invariant, Replicated>());
static_assert(decided<Sequential<Row, Relu>,                  Features,  Sequence,  Sequence,  Features, Sequence>());
static_assert(decided<Sequential<Row, Relu>,                  Features,  Replicated, Invariant, Features, Invariant>());
static_assert(decided<Sequential<Row, Row>,                   Features,  Invariant, Partial,   Features, Features>());
static_assert(decided<Sequential<Row, Column>,                Features,  Features,  Features,  Features, Replicated>());
static_assert(decided<Sequential<Column, Column>,             Invariant, Features,  Features,  Replicated, Replicated>());
static_assert(decided<Sequential<Row, To<Sequence>, Relu>,    Features,  Invariant, Sequence,  Features, Sequence, Sequence>());
static_assert(decided<Sequential<Whole, Relu, Whole>,         Batch,     Invariant, Batch,     Batch, Batch, Batch>());
static_assert(decided<Sequential<Column, Whole>,              Invariant, Invariant, Invariant, Replicated, Invariant>());
static_assert(decided<Sequential<Column, Whole>,              Batch,     Batch,     Batch,     Replicated, Batch>());
static_assert(decided<Sequential<Flatten, Row>,               Channels,  Invariant, Partial,   Channels, Features>());
static_assert(decided<Sequential<Flatten, Row>,               Invariant, Invariant, Partial,   Invariant, Features>());
static_assert(decided<Sequential<Relu, Flatten, Row>,         Sharded<Axis::height>, Invariant, Partial, Sharded<Axis::height>, Channels, Features>());

// --- blocks --------------------------------------------------------------------------------------

using Block = Sequential<Column, Gelu, Row>;
static_assert(decided<Sequential<Residual<Block>>,            Invariant, Invariant, Invariant, Invariant>());
static_assert(decided<Sequential<Residual<Block>>,            Sequence,  Invariant, Sequence,  Sequence>());
// A sum is completed once, in front of the fork, and where it is wanted if that is a split.
static_assert(decided<Sequential<Row, Residual<Block>, Relu>, Features,  Sequence,  Sequence,  Features, Sequence, Sequence>());
static_assert(decided<Sequential<Row, Residual<Block>>,       Features,  Invariant, Invariant, Features, Invariant>());
static_assert(decided<Sequential<Residual<Block>>,            Replicated, Invariant, Invariant, Invariant>());
static_assert(decided<Sequential<Column, Residual<Block>>,    Invariant, Invariant, Features,  Replicated, Features>());
// A Join: the branches, and then the sum, which takes what the first branch gives.
static_assert(decided<Join<Sum, Column, Column>,  Invariant, Invariant, Features,  Replicated, Replicated, Features>());
static_assert(decided<Join<Sum, Identity, Block>, Invariant, Invariant, Invariant, Invariant, Replicated, Invariant>());
static_assert(decided<Join<Sum, Row, Whole>,      Invariant, Invariant, Invariant, Features, Invariant, Invariant>());
static_assert(decided<Join<Sum, Row, Whole>,      Batch,     Batch,     Batch,     Features, Batch, Batch>());
static_assert(decided<Join<Sum, Column, Row>,     Partial,   Invariant, Features,  Replicated, Features, Features>());
// A Repeat settles on a layout that its block brings back.
static_assert(decided<Sequential<Repeat<3, Residual<Block>>>, Sequence,  Sequence,  Sequence,  Sequence>());
static_assert(decided<Sequential<Repeat<3, Block>>,           Invariant, Invariant, Invariant, Invariant>());
static_assert(decided<Sequential<Repeat<3, Sequential<Row, Relu>>>, Invariant, Invariant, Features, Features>());
// A model within a model is one layer of it.
static_assert(decided<Sequential<Block, Relu, Block>,         Invariant, Invariant, Partial,   Replicated, Invariant, Replicated>());
static_assert(decided<Sequential<Row, Sequential<Relu, Row>>, Features,  Invariant, Partial,   Features, Features>());
// clang-format on

// A name of one's own changes nothing.
struct Mlp : Sequential<Column, Gelu, Row> {};
struct Stack : Repeat<2, Residual<Mlp>> {};
static_assert(decided<Mlp, Sequence, Sequence, Partial, Replicated, Features, Features>());
static_assert(std::same_as<output_layout_t<Mlp, Invariant>, Partial>);
static_assert(std::same_as<output_layout_t<Stack, Sequence>, Sequence>);

}  // namespace

#pragma once
// Whether the exchanges of a layer run along the mesh axes that cut its input.

#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/other_axes.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise::detail {

[[noreturn, gnu::cold]] void refuse_other_exchanges(const mesh& sizes, Axis cut);
[[noreturn, gnu::cold]] void refuse_cut_exchange(const mesh& sizes, std::size_t index,
                                                 const Shape& shape, MeshAxis axis);

/// Throws if ranks that combine the values of exchange Index have those of other samples, tokens or
/// rows; `cut` is the axis that ranks along `context` cut.
template <class Exchanges, std::size_t Index>
void require_combined_whole(const mesh& sizes, const Shape& shape, Axis cut) {
  for (const MeshAxis axis : sample_axes) {
    const Axis own = axis_cut_along(axis, cut);
    if (sizes[axis] > 1 && combined_over<Exchanges, Index, false>.has(own) && shape.has(own) &&
        extent_of(shape, own) != 1)
      refuse_cut_exchange(sizes, Index, shape, axis);
  }
}

template <class Exchanges, class L, std::size_t... Is>
void require_all_combined_whole([[maybe_unused]] const mesh& sizes, [[maybe_unused]] const L& layer,
                                [[maybe_unused]] const Shape& in, std::index_sequence<Is...>) {
  if constexpr ((combined_over<Exchanges, Is, false>.any() || ...)) {
    const auto shapes = layer.exchange_shapes(in);
    (require_combined_whole<Exchanges, Is>(sizes, shapes[Is], axis_over_context(in)), ...);
  }
}

/// throws   argument_error for a layer that is bound to an input of shape `in`, if it exchanges
///          something along another axis than `tensor` that it does not exchange along that one, or
///          numbers of samples, tokens or rows of which ranks there have different ones
template <class L, Layout In, class Context>
void require_exchanges_over_slices([[maybe_unused]] const Run<Context>& run,
                                   [[maybe_unused]] const L& layer,
                                   [[maybe_unused]] const Shape& in) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    using AlongTensor = exchanges_t<L, In>;
    using OfTokens = exchanges_t<L, typename RuleOfRows<L, Axis::sequence>::taken>;
    using OfRows = exchanges_t<L, typename RuleOfRows<L, Axis::height>::taken>;
    static_assert(
        exchanges_hold<AlongTensor, exchanges_t<L, Sharded<Axis::batch>>>,
        "On a mesh ranks along `data` have different samples, and L exchanges something for "
        "Sharded<Axis::batch> that it does not exchange for its layout along `tensor`. Its lists "
        "for all layouts name the same exchanges, with the same reduction and type of values; "
        "one that moves nothing there is Exchange<Redistribute<In, In>>.");
    const mesh& sizes = run.all_ranks.sizes();
    const Axis cut = axis_over_context(in);
    const bool may_have_tokens = cut == Axis::sequence || in.rank() == 0;
    if (sizes.context > 1 && ((may_have_tokens && !exchanges_hold<AlongTensor, OfTokens>) ||
                              (cut == Axis::height && !exchanges_hold<AlongTensor, OfRows>)))
      refuse_other_exchanges(sizes, cut == Axis::height ? cut : Axis::sequence);
    if (in.rank() > 0)
      require_all_combined_whole<exchanges_on_mesh_t<L, In>>(
          sizes, layer, in, std::make_index_sequence<std::tuple_size_v<AlongTensor>>{});
  }
}

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void refuse_other_exchanges(const mesh& sizes, Axis cut) {
  throw argument_error(
      {"the layer exchanges something for Sharded<Axis::", name(cut),
       "> that it does not exchange for its layout along tensor, and on the mesh ", sizes,
       " ranks along context have different parts of that axis. Its lists for all layouts must "
       "name "
       "the same exchanges, with the same reduction and type of values; one that moves nothing "
       "there is Exchange<Redistribute<In, In>>"});
}

SHARDWISE_INLINE void refuse_cut_exchange(const mesh& sizes, std::size_t index, const Shape& shape,
                                          MeshAxis axis) {
  throw argument_error({"exchange ", index, " of the layer is a tensor ", shape,
                        ", and on the mesh ", sizes, " ranks along ", name(axis),
                        " have the numbers of different samples, tokens or rows: they would be "
                        "added to each other. For the layout Sharded of that axis the layer must "
                        "name an exchange that moves nothing, Exchange<Redistribute<In, In>>"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE

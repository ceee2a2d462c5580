#pragma once
// Layers on a mesh whose ranks along `context` have different tokens of a sample or different rows
// of an image: which of them run there, and how rows come to a layer.

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/local_shape.hpp"
#include "shardwise/layout/rows_begin.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/over_context.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/model/value.hpp"
#include "shardwise/redistribute/redistribute.hpp"

namespace shardwise::detail {

/// A layer that runs where ranks along `context` have different rows: on its block of them, with
/// what its windows read beyond it, or on whole images of other samples.
template <class L>
concept TakesRows = requires {
  typename L::rows_taken;
  requires ShardedLayout<typename L::rows_taken> || HaloedLayout<typename L::rows_taken>;
  requires L::rows_taken::axis == Axis::height || L::rows_taken::axis == Axis::batch;
};

/// Whether L gives one row in place of a block of rows.
template <class L>
inline constexpr bool gives_one_row = requires {
  typename L::rows_given;
};

/// What brings rows over `context` to L, and what makes blocks of rows of the one that L gives.
template <class L>
using RowsTaken = Redistribute<Sharded<Axis::height>, typename L::rows_taken>;
template <class L>
using RowsGiven = Redistribute<typename L::rows_given, Sharded<Axis::height>>;

/// Whether L runs where ranks have different rows, and needs others than its own.
template <class L>
inline constexpr bool moves_rows = false;
template <TakesRows L>
inline constexpr bool moves_rows<L> = RowsTaken<L>::movement != Movement::none;

[[noreturn, gnu::noinline, gnu::cold]] inline void refuse_tokens(const mesh& sizes) {
  throw argument_error({"the layer may read several tokens of a sample, and on the mesh ", sizes,
                        " ranks along context have different ones. Give those ranks to another "
                        "axis; a layer whose result for a token depends on that token alone says "
                        "so by `token_by_token`"});
}

[[noreturn, gnu::noinline, gnu::cold]] inline void refuse_rows(const mesh& sizes,
                                                               const Shape& images,
                                                               const char* why) {
  throw argument_error({"images are a tensor ", images, ", and on the mesh ", sizes,
                        " ranks along context have different rows of it (height), but ", why});
}

[[noreturn, gnu::noinline, gnu::cold]] inline void refuse_whole_samples(const mesh& sizes,
                                                                        const Shape& in,
                                                                        const Shape& out) {
  throw argument_error(
      {"the layer gives a tensor ", out, " for ", in, ", of which, on the mesh ", sizes,
       ", ranks along context have different samples, but layers behind "
       "it take ",
       out, " cut by ", name(axis_over_context(out)), ". Give those ranks to another axis"});
}

/// For images of which the model does not know how many rows they have.
inline constexpr const char* unknown_rows =
    "their number is not known. Give the Model the shape of its input with it";

inline constexpr const char* other_rows =
    "it has another number of them than the model was bound to: images must have as many rows as "
    "the shape that the Model was given";

/// The rows of whole images that the rank has along `context`.
inline Interval rows_here(const Shape& images, const Place& context) {
  return block_of(images[images.find(Axis::height)], context);
}

/// throws   argument_error for a layer or merge that does not run on rows of these images; Ins are
///          the layouts of its inputs
template <class L, PlainLayout... Ins>
void require_runs_on_rows(const mesh& sizes, const Shape& images) {
  if (!TakesRows<L>)
    refuse_rows(sizes, images,
                "the layer may read several of them. Give those ranks to another axis; a layer "
                "that says what rows it reads has `rows_taken`");
  if ((layout_value<Ins>.cuts(Axis::height) || ...))
    refuse_rows(sizes, images,
                "its rows are split along tensor, too. Split channels along tensor, or give "
                "context one rank");
  if (!images[images.find(Axis::height)].known()) refuse_rows(sizes, images, unknown_rows);
  if constexpr (TakesRows<L>) {
    if (std::same_as<typename L::rows_taken, Sharded<Axis::batch>> &&
        (layout_value<Ins>.cuts(Axis::batch) || ...))
      refuse_rows(sizes, images,
                  "the layer takes whole images of other samples, and those are split along "
                  "tensor. Split them behind the layer");
  }
}

/// throws   argument_error for a layer or merge that may need tokens or rows of other ranks, or
///          makes them of whole samples; Ins are the layouts of its inputs, `in` is the shape of
///          the first one
template <class L, PlainLayout... Ins, class Context>
void require_runs_over_context([[maybe_unused]] const Run<Context>& run,
                               [[maybe_unused]] const Shape& in,
                               [[maybe_unused]] const Shape& out) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    const mesh& sizes = run.all_ranks.sizes();
    if (sizes.context == 1) return;
    if (!in.has(Axis::batch) || in.has(Axis::sequence)) {
      if (computes_token_by_token<L>) return;
      if (TakesRows<L> && in.rank() == 0) refuse_rows(sizes, in, unknown_rows);
      refuse_tokens(sizes);
    }
    if (in.has(Axis::height)) {
      require_runs_on_rows<L, Ins...>(sizes, in);
    } else if (axis_over_context(out) != Axis::batch) {
      refuse_whole_samples(sizes, in, out);
    }
  }
}

/// Whether the ranks of a model can have different rows of the inputs of L.
template <class L, class Context>
inline constexpr bool may_cut_rows =
    MeshCommunicator<typename Context::communicator>&& TakesRows<L>;

/// Whether they have, of a layer that is bound to `bound`.
template <class L, class Context>
bool cuts_rows_of([[maybe_unused]] const Run<Context>& run, [[maybe_unused]] const Shape& bound) {
  if constexpr (may_cut_rows<L, Context>) {
    return run.all_ranks.sizes().context > 1 && axis_over_context(bound) == Axis::height;
  } else {
    return false;
  }
}

/// The shape over all ranks of the model of the input of L, of which the rank has this part.
template <class L, class Context>
Shape whole_input(const Run<Context>& run, const Shape& in, const Shape& bound) {
  const Shape whole = of_whole_batch(run, in);
  if (!cuts_rows_of<L>(run, bound)) return whole;
  return with_extent_of(whole, Axis::height, extent_of(bound, Axis::height));
}

/// Where the rows of the rank begin in the images that L takes and gives: tensors of these shapes.
template <class L, class Context>
RowsBegin rows_begin([[maybe_unused]] const Run<Context>& run, const Shape& bound,
                     [[maybe_unused]] const Shape& out) {
  RowsBegin begin;
  if (!cuts_rows_of<L>(run, bound)) return begin;
  if constexpr (may_cut_rows<L, Context>) {
    const Place& along = run.all_ranks.place()[MeshAxis::context];
    if (L::rows_taken::axis == Axis::height)
      begin.in = local_block<typename L::rows_taken>(bound, along).offset;
    if (out.has(Axis::height)) begin.out = rows_here(out, along).offset;
  }
  return begin;
}

/// The shape of what L gives for its input of shape `in`, which has the rows that L reads.
template <class L, class Context>
Shape output_shape_here(const Run<Context>& run, const L& layer, const Shape& in,
                        const Shape& bound) {
  if (!cuts_rows_of<L>(run, bound)) return layer.output_shape(in);
  const Shape whole = with_extent_of(in, Axis::height, extent_of(bound, Axis::height));
  const Shape out = layer.output_shape(whole);
  if (gives_one_row<L> || !out.has(Axis::height)) return out;
  return with_extent_of(out, Axis::height, rows_here(out, run.flight->slice.context).size);
}

/// The input of L, with the rows that L reads in place of those of the rank's block.
template <class L, class Context, class T, PlainLayout In>
Value<T, In> with_rows_taken(Run<Context>& run, Value<T, In>&& value, const Shape& bound) {
  if constexpr (moves_rows<L>) {
    if (cuts_rows_of<L>(run, bound))
      return moved_over_context<RowsTaken<L>>(run, std::move(value),
                                              extent_of(bound, Axis::height));
  }
  return std::move(value);
}

/// The way back of its gradient.
template <class L, class Context, class T, PlainLayout In>
Value<T, In> without_rows_taken(Run<Context>& run, Value<T, In>&& value,
                                [[maybe_unused]] const Shape& bound) {
  if constexpr (may_cut_rows<L, Context> && moves_rows<L>) {
    if (cuts_rows_of<L>(run, bound))
      return moved_over_context<adjoint_t<RowsTaken<L>>>(run, std::move(value),
                                                         extent_of(bound, Axis::height));
  }
  return std::move(value);
}

/// What L gives, as the rank's block of rows; with Back, the way back of its gradient.
template <class L, bool Back, class Context, class T, PlainLayout Out>
Value<T, Out> with_rows_given(Run<Context>& run, Value<T, Out>&& value, const L& layer,
                              const Shape& bound) {
  using R = std::conditional_t<Back, adjoint_t<RowsGiven<L>>, RowsGiven<L>>;
  if (!cuts_rows_of<L>(run, bound)) return std::move(value);
  return moved_over_context<R>(run, std::move(value),
                               extent_of(layer.output_shape(bound), Axis::height));
}

}  // namespace shardwise::detail

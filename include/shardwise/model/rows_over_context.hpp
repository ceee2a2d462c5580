#pragma once
// Layers on a mesh whose ranks along `context` have different tokens of a sample or different rows
// of an image: which of them run there, and how rows come to a layer.

#include <concepts>
#include <type_traits>
#include <utility>

#include "shardwise/comm/mesh_communicator.hpp"
#include "shardwise/core/compiled.hpp"
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

/// A layer that runs where ranks along `context` have different rows or tokens: on its block of
/// them, with what its windows read beyond it, or on whole samples, other ones on each rank.
template <class L>
concept TakesRows = requires {
  typename L::rows_taken;
  requires ShardedLayout<typename L::rows_taken> || HaloedLayout<typename L::rows_taken>;
  requires L::rows_taken::axis == Axis::height || L::rows_taken::axis == Axis::sequence ||
      L::rows_taken::axis == Axis::batch;
};

/// Whether L is such a layer for inputs that `cut` cuts.
template <class L>
constexpr bool takes_rows([[maybe_unused]] Axis cut) {
  if constexpr (TakesRows<L>) {
    constexpr Axis taken = L::rows_taken::axis;
    return cut != Axis::batch && (cut == taken || taken == Axis::batch);
  } else {
    return false;
  }
}

/// Whether it takes whole samples.
template <class L>
inline constexpr bool takes_samples = false;
template <TakesRows L>
inline constexpr bool takes_samples<L> = L::rows_taken::axis == Axis::batch;

/// Whether L says what it gives of its rows, which is then not its block of them.
template <class L>
concept GivesRows = requires {
  typename L::rows_given;
};

/// Whether blocks of the rows of an input of L over so many ranks are those of its output, although
/// it takes and gives others.
template <class L>
constexpr bool keeps_rows([[maybe_unused]] const Shape& in, [[maybe_unused]] int ranks) {
  if constexpr (requires { L::keeps_rows(in, ranks); }) {
    return L::keeps_rows(in, ranks);
  } else {
    return false;
  }
}

/// Calls f.operator()<R>() for the R that brings rows over `context` to L, for an input of the
/// shape `in` over all ranks, if anything moves.
template <class L, class F>
constexpr void for_rows_taken(const Shape& in, int ranks, F&& f) {
  const Axis cut = axis_over_context(in);
  if (!takes_rows<L>(cut) || keeps_rows<L>(in, ranks)) return;
  const auto from = [&]<Axis From>() {
    if constexpr (takes_rows<L>(From)) {
      using R = Redistribute<Sharded<From>, typename L::rows_taken>;
      if constexpr (R::movement != Movement::none) {
        if (cut == From) f.template operator()<R>();
      }
    }
  };
  from.template operator()<Axis::height>();
  from.template operator()<Axis::sequence>();
}

/// Whether L may need other rows than its own.
template <class L>
consteval bool may_move_rows() {
  if constexpr (TakesRows<L>) {
    return L::rows_taken::axis == Axis::batch || HaloedLayout<typename L::rows_taken>;
  } else {
    return false;
  }
}

[[noreturn, gnu::cold]] void refuse_tokens(const mesh& sizes);

[[noreturn, gnu::cold]] void refuse_rows(const mesh& sizes, const Shape& whole, const char* why);

[[noreturn, gnu::cold]] void refuse_whole_samples(const mesh& sizes, const Shape& in,
                                                  const Shape& out);

/// For tensors of which the model does not know how many rows or tokens they have.
inline constexpr const char* unknown_rows =
    "their number is not known. Give the Model the shape of its input with it";

inline constexpr const char* other_rows =
    "it has another number of them than the model was bound to: it must have as many as the shape "
    "that the Model was given";

/// The rows or tokens of a whole tensor that the rank has along `context`.
inline Interval rows_here(const Shape& whole, const Place& context) {
  return block_of(extent_of(whole, axis_over_context(whole)), context);
}

/// throws   argument_error for a layer or merge that does not run on these rows or tokens; Ins are
///          the layouts of its inputs
template <class L, PlainLayout... Ins>
void require_runs_on_rows(const mesh& sizes, const Shape& in) {
  const Axis cut = axis_over_context(in);
  if constexpr (TakesRows<L>) {
    using Taken = typename L::rows_taken;
    if (!std::same_as<Taken, Sharded<Axis::sequence>> && (layout_value<Ins>.cuts(cut) || ...))
      refuse_rows(sizes, in,
                  "they are split along tensor, too. Split channels, width or features along "
                  "tensor, or give context one rank");
    if (!std::same_as<Taken, Sharded<Axis::sequence>> && !in[in.find(cut)].known())
      refuse_rows(sizes, in, unknown_rows);
    if (std::same_as<Taken, Sharded<Axis::batch>> && (layout_value<Ins>.cuts(Axis::batch) || ...))
      refuse_rows(sizes, in,
                  "the layer takes whole samples, other ones on each rank, and those are split "
                  "along tensor. Split them behind the layer");
  }
}

/// throws   argument_error for a layer or merge that may need tokens or rows of other ranks, or
///          makes them of whole samples; Ins are the layouts of its inputs, `in` is the shape of
///          the first one
template <class L, PlainLayout... Ins, class Context>
void require_runs_over_context([[maybe_unused]] Run<Context>& run, [[maybe_unused]] const Shape& in,
                               [[maybe_unused]] const Shape& out) {
  if constexpr (MeshCommunicator<typename Context::communicator>) {
    const mesh& sizes = run.all_ranks.sizes();
    if (sizes.context == 1) return;
    const Axis cut = axis_over_context(in), given = axis_over_context(out);
    if (takes_rows<L>(cut)) {
      require_runs_on_rows<L, Ins...>(sizes, in);
      if (takes_samples<L> && !GivesRows<L> && given != Axis::batch)
        refuse_whole_samples(sizes, in, out);
    } else if (!in.has(Axis::batch) || cut == Axis::sequence) {
      if (computes_token_by_token<L>) return;
      if (TakesRows<L> && in.rank() == 0) refuse_rows(sizes, in, unknown_rows);
      refuse_tokens(sizes);
    } else if (cut == Axis::height) {
      refuse_rows(sizes, in,
                  "the layer may read several of them. Give those ranks to another axis; a layer "
                  "that says what rows it reads has `rows_taken`");
    } else if (given != Axis::batch) {
      refuse_whole_samples(sizes, in, out);
    }
    if (given == Axis::sequence && (cut != given || extent_of(in, cut) != extent_of(out, given))) {
      if (extent_of(out, given) == dynamic) refuse_rows(sizes, out, unknown_rows);
      run.counts_tokens_as_bound = true;
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
    return run.all_ranks.sizes().context > 1 && takes_rows<L>(axis_over_context(bound));
  } else {
    return false;
  }
}

/// Where the rows of the rank begin in what L takes and gives: tensors of these shapes.
template <class L, class Context>
RowsBegin rows_begin([[maybe_unused]] const Run<Context>& run, const Shape& bound,
                     [[maybe_unused]] const Shape& out) {
  RowsBegin begin;
  if (!cuts_rows_of<L>(run, bound)) return begin;
  if constexpr (may_cut_rows<L, Context>) {
    const Place& along = run.all_ranks.place()[MeshAxis::context];
    if (!takes_samples<L>) begin.in = local_block<typename L::rows_taken>(bound, along).offset;
    if (axis_over_context(out) != Axis::batch) begin.out = rows_here(out, along).offset;
  }
  return begin;
}

/// The shape of what L gives for its input of shape `in`, which has the rows that L reads.
template <class L, class Context>
Shape output_shape_here(const Run<Context>& run, const L& layer, const Shape& in,
                        const Shape& bound) {
  if (!cuts_rows_of<L>(run, bound)) return layer.output_shape(in);
  const Axis cut = axis_over_context(bound);
  const Shape out = layer.output_shape(with_extent_of(in, cut, extent_of(bound, cut)));
  const Place& along = run.flight->slice.context;
  const Axis given = axis_over_context(out);
  if (given == Axis::batch || (GivesRows<L> && !keeps_rows<L>(bound, along.size))) return out;
  return with_extent_of(out, given, rows_here(out, along).size);
}

/// The input of L, with the rows that L reads in place of those of the rank's block; with Back, the
/// way back of its gradient.
template <class L, bool Back, class Context, class T, PlainLayout In>
Value<T, In> with_rows_taken(Run<Context>& run, Value<T, In>&& value,
                             [[maybe_unused]] const Shape& bound) {
  if constexpr (may_cut_rows<L, Context> && may_move_rows<L>()) {
    const int ranks = run.all_ranks.sizes().context;
    if (ranks > 1)
      for_rows_taken<L>(bound, ranks, [&]<class R>() {
        value = moved_over_context<std::conditional_t<Back, adjoint_t<R>, R>>(
            run, std::move(value), extent_of(bound, axis_over_context(bound)));
      });
  }
  return std::move(value);
}

/// What L gives, as the rank's block of rows; with Back, the way back of its gradient.
template <class L, bool Back, class Context, class T, PlainLayout Out>
Value<T, Out> with_rows_given(Run<Context>& run, Value<T, Out>&& value, const L& layer,
                              const Shape& bound) {
  using R = typename L::rows_given;
  if (!cuts_rows_of<L>(run, bound) || keeps_rows<L>(bound, run.flight->slice.context.size))
    return std::move(value);
  const Shape out = layer.output_shape(bound);
  return moved_over_context<std::conditional_t<Back, adjoint_t<R>, R>>(
      run, std::move(value), extent_of(out, axis_over_context(out)));
}

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void refuse_tokens(const mesh& sizes) {
  throw argument_error({"the layer may read several tokens of a sample, and on the mesh ", sizes,
                        " ranks along context have different ones. Give those ranks to another "
                        "axis; a layer whose result for a token depends on that token alone says "
                        "so by `token_by_token`"});
}

SHARDWISE_INLINE void refuse_rows(const mesh& sizes, const Shape& whole, const char* why) {
  throw argument_error(
      {"of a tensor ", whole, ", on the mesh ", sizes, " ranks along context have different ",
       whole.has(Axis::sequence) ? "tokens (sequence)" : "rows (height)", ", but ", why});
}

SHARDWISE_INLINE void refuse_whole_samples(const mesh& sizes, const Shape& in, const Shape& out) {
  throw argument_error(
      {"the layer gives a tensor ", out, " for ", in, ", of which, on the mesh ", sizes,
       ", ranks along context have different samples, but layers behind "
       "it take ",
       out, " cut by ", name(axis_over_context(out)), ". Give those ranks to another axis"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
